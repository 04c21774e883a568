"""`Command`: a program that is run for each request, and whose output is the reply."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.cli.arguments import parse_json
from hanzoai.pubsub.cli.output import encode
from hanzoai.pubsub.errors import ReplyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.values import Message

OUTPUT_MAX: Final = 1024 * 1024
"""Bytes that a command may print; more than any server accepts as a reply by default."""
PATIENCE: Final = 60.0
"""Seconds that a command may run if the request has no ``ttl``."""
_CHUNK: Final = 65_536


class Command:
    """Runs a program for each request.

    It gets the data of the request as one line of JSON on standard input, and the topic, the id,
    the type and the sender in ``HANZO_PUBSUB_REQUEST_…``. Its standard error is that of this
    program.

    Args:
        words: The program and its arguments.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    async def answer(self, request: Message) -> Any:
        """The output of the program: JSON, otherwise a string without final line breaks.

        The program is stopped when the sender of the request no longer waits.

        Raises:
            ReplyError: The program cannot be started, fails, runs too long or prints too much.
        """
        process = await self._start(request)
        try:
            async with asyncio.timeout(request.ttl or PATIENCE):
                output, _ = await asyncio.gather(_read(process), _write(process, request.data))
                code = await process.wait()
        except TimeoutError:
            raise ReplyError("The command ran too long.", code="command_timeout") from None
        finally:
            await _stop(process)
        if code != 0:
            raise ReplyError(
                f"The command exited with {code}.", code="command_failed", data={"exit": code}
            )
        return _parse(output)

    async def _start(self, request: Message) -> asyncio.subprocess.Process:
        sender = request.sender
        variables = {
            "HANZO_PUBSUB_REQUEST_TOPIC": request.topic,
            "HANZO_PUBSUB_REQUEST_ID": request.id,
            "HANZO_PUBSUB_REQUEST_TYPE": request.type,
            "HANZO_PUBSUB_REQUEST_SENDER": "" if sender is None else sender.id,
        }
        try:
            return await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **variables},
                # Ctrl-C goes to this program only, which then stops the command and its children.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it has a NUL character"
            raise ReplyError(
                f"The command cannot be started: {why}.", code="command_failed"
            ) from error


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    while chunk := await process.stdout.read(_CHUNK):
        output += chunk
        if len(output) > OUTPUT_MAX:
            # The end of the process is noticed only when its output has been read.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            while await process.stdout.read(_CHUNK):
                pass
            raise ReplyError(
                f"The command printed more than {OUTPUT_MAX:,} bytes.", code="command_failed"
            )
    return bytes(output)


async def _write(process: asyncio.subprocess.Process, data: Any) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(encode(data).encode() + b"\n")
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass  # a command does not have to read its input
    finally:
        process.stdin.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop the program and its children, if they still run."""
    if process.returncode is not None:
        return
    try:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    await process.wait()


def _parse(output: bytes) -> Any:
    """The JSON value, null for empty output, otherwise the text."""
    text = output.decode("utf-8", "replace").rstrip("\r\n")
    if not text.strip():
        return None
    try:
        return parse_json(text)
    except ValueError:
        return text
