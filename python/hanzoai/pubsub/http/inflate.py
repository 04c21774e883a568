"""Decompresses answers in portions of limited size."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from hanzoai.pubsub.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

ACCEPTED: Final = "gzip, deflate"
"""Accepted encodings: those that can be decompressed in portions."""

_PORTION: Final = 1 << 16
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


async def inflated(chunks: AsyncIterable[bytes], encoding: str | None) -> AsyncGenerator[bytes]:
    """Undo `Content-Encoding`.

    A few kilobytes can expand to gigabytes. The caller counts the portions of 64 KiB and stops
    early.

    Args:
        chunks: Bytes from the network.
        encoding: `gzip`, `deflate`, or nothing.

    Raises:
        ProtocolError: The encoding is another one, or the bytes are not valid.
    """
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        async for chunk in chunks:
            yield chunk
        return
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ProtocolError(
            f"The answer is compressed as `{name[:64]}`, which the client did not request.",
            remedy="Configure the proxy in front of the server to respect `Accept-Encoding`.",
        )
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    async for chunk in chunks:
        rest = chunk
        # zlib would keep what follows the end, and return it as unconsumed again and again.
        while rest and not inflater.eof:
            try:
                portion = inflater.decompress(rest, _PORTION)
            except zlib.error as error:
                raise ProtocolError(f"The answer is not valid {name}.") from error
            rest = inflater.unconsumed_tail
            if portion:
                yield portion
