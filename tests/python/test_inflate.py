"""Compressed answers: what is accepted, and how much comes at once."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from hanzoai.pubsub.errors import ProtocolError
from hanzoai.pubsub.http.inflate import inflated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TEXT = b"a message, and another message, " * 10_000
PORTION = 65_536


async def read(encoding: str | None, *chunks: bytes) -> list[bytes]:
    """Return the portions."""

    async def network() -> AsyncGenerator[bytes]:
        for chunk in chunks:
            yield chunk

    return [portion async for portion in inflated(network(), encoding)]


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
async def test_an_answer_without_compression_is_unchanged(encoding: str | None) -> None:
    assert await read(encoding, b"\x1f\x8b", b"", b"x") == [b"\x1f\x8b", b"", b"x"]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        (" X-GZIP", gzip.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)),
    ],
)
async def test_an_answer_comes_in_portions_of_limited_size(encoding: str, body: bytes) -> None:
    whole = await read(encoding, body)
    assert b"".join(whole) == TEXT
    assert [len(portion) for portion in whole] == [PORTION] * 4 + [len(TEXT) - 4 * PORTION]
    cut = await read(encoding, *(body[n : n + 1] for n in range(len(body))))
    assert b"".join(cut) == TEXT


async def test_bytes_behind_the_end_are_ignored() -> None:
    body = gzip.compress(b"x")
    assert await read("gzip", body + b"more", b"and more") == [b"x"]
    large = await read("gzip", gzip.compress(TEXT) + b"more", b"and more")
    assert b"".join(large) == TEXT


async def test_bytes_behind_the_end_are_not_kept() -> None:
    garbage = [bytes(PORTION)] * 200
    tracemalloc.start()
    try:
        assert await read("gzip", gzip.compress(b"x"), *garbage) == [b"x"]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * PORTION


async def test_an_encoding_that_was_not_requested_is_refused_by_its_name() -> None:
    with pytest.raises(ProtocolError, match="`br`") as refused:
        await read(" BR ", b"x")
    assert "Accept-Encoding" in refused.value.remedy
    with pytest.raises(ProtocolError) as refused:
        await read("x" * 10_000, b"x")
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    "body",
    [b"not compressed", gzip.compress(TEXT)[:50] + b"\xff" * 50],
    ids=["not compressed", "damaged"],
)
async def test_invalid_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not valid gzip"):
        await read("gzip", body)
