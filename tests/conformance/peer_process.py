"""The runner's side of the process of one language: sends commands, reads answers and events."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

Json = dict[str, Any]
Language = Literal["python", "typescript"]
Speed = Literal["on", "off"]
LANGUAGES: Final[tuple[Language, ...]] = ("python", "typescript")
ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 15.0
"""Maximum seconds of one step before a scenario fails."""
LINE_MAX: Final = 64 << 20


class PeerGone(Exception):
    """The process ended or does not answer; the text contains the end of its output."""


class Stream:
    """The events that a scenario receives under one name, in order."""

    def __init__(self) -> None:
        self._events: list[Json] = []
        self._came = asyncio.Event()

    def put(self, event: Json) -> None:
        self._events.append(event)
        self._came.set()

    async def take(self) -> Json:
        while not self._events:
            self._came.clear()
            await self._came.wait()
        return self._events.pop(0)

    def rest(self) -> list[Json]:
        return list(self._events)


class PeerProcess:
    """One process, which is reused with new clients for each scenario."""

    def __init__(self, language: Language, process: asyncio.subprocess.Process) -> None:
        self.language: Language = language
        self.transcript: list[str] = []
        self._process = process
        self._ids = 0
        self._round = 0
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._streams: dict[str, Stream] = {}
        self._output = ""
        self._lost = False
        self._listening = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._listen_errors()),
        ]

    @classmethod
    async def start(
        cls, language: Language, built: Path, *, speed: Speed = "off", within: float = PATIENCE
    ) -> Self:
        """Start it, and wait until it is ready.

        Args:
            language: The language of the process.
            built: Folder of the compiled TypeScript, which `tests/js/run.mjs --build` prints.
            speed: Whether the Python client uses the libraries of the extra `speed`.
            within: Maximum seconds of the start.
        """
        python = [sys.executable, "-W", "error", "-m", "tests.conformance.peers.peer"]
        program = "tests/conformance/peers/peer.js"
        node = ["node", "--enable-source-maps", str(built / program)]
        process = await asyncio.create_subprocess_exec(
            *(python if language == "python" else node),
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if not k.startswith("HANZO_PUBSUB_")}
            | {"HANZO_PUBSUB_SPEED": speed},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_MAX,
        )
        peer = cls(language, process)
        async with asyncio.timeout(within):
            await peer.stream("ready").take()
        return peer

    def stream(self, name: str) -> Stream:
        return self._streams.setdefault(name, Stream())

    def streams(self) -> dict[str, list[Json]]:
        """Return the events that were not taken, by name."""
        return {name: stream.rest() for name, stream in self._streams.items()}

    def begin(self, do: str, by: str | None, given: Mapping[str, Any]) -> asyncio.Future[Json]:
        """Send a command; return a future of its answer, `gives` or `fails`."""
        if self._process.returncode is not None:
            raise PeerGone(self._output)
        if "sub" in given:
            given = {**given, "sub": self._named(given["sub"])}
        self._ids += 1
        answer = self._answers[self._ids] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": self._ids, "do": do, "by": self._named(by), "with": given})
        self.transcript.append(f"→ {line}")
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return answer

    def _named(self, name: str | None) -> str | None:
        # Late events of a client of an earlier scenario must not count for a later one.
        return None if name is None else f"{self._round}/{name}"

    async def ask(self, do: str, by: str | None = None, **given: Any) -> Json:
        async with asyncio.timeout(PATIENCE):
            return await self.begin(do, by, given)

    async def reset(self) -> list[Json]:
        """Close every client and reset the state; return errors that the scenario did not see."""
        try:
            await self.ask("reset")
        except TimeoutError:
            self._lost = True
            self._process.kill()
            raise PeerGone("the clients could not be closed") from None
        trouble = self.stream("trouble").rest()
        self._round += 1
        self._streams.clear()
        self._answers.clear()
        self.transcript.clear()
        return trouble

    async def stop(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(*self._listening)

    @property
    def gone(self) -> bool:
        """Whether it has ended, or no longer answers."""
        return self._lost or self._process.returncode is not None

    @property
    def output(self) -> str:
        """Its error output."""
        return self._output

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            text = raw.decode().rstrip("\n")
            self.transcript.append(f"← {text}")
            line: Json = json.loads(text)
            if "id" in line:
                answer = self._answers.pop(line["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(line)
            else:
                self._receive(str(line.pop("see", "/ready")), line)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(PeerGone(self._output))
        self.stream("trouble").put({"trouble": f"the process ended: {self._output}"})

    def _receive(self, name: str, event: Json) -> None:
        of, _, rest = name.rpartition("/")
        if of in ("", str(self._round)):
            self.stream(rest).put(event)

    async def _listen_errors(self) -> None:
        assert self._process.stderr is not None
        async for raw in self._process.stderr:
            self._output = (self._output + raw.decode(errors="replace"))[-20_000:]


class Peers:
    """One process of each language, started at the first use."""

    def __init__(self, built: Path) -> None:
        self._built = built
        self._open: dict[tuple[Language, Speed], PeerProcess] = {}

    async def get(self, language: Language, speed: Speed = "off") -> PeerProcess:
        """Return the process of a language; start a new one if it has ended."""
        key = (language, speed)
        if key in self._open and self._open[key].gone:
            await self._open.pop(key).stop()
        if key not in self._open:
            self._open[key] = await PeerProcess.start(language, self._built, speed=speed)
        return self._open[key]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(peer.stop() for peer in self._open.values()))


@contextmanager
def compiled() -> Generator[Path]:
    """Compile the TypeScript; yield the folder, and delete it at the end."""
    done = subprocess.run(
        ["node", "tests/js/run.mjs", "--build"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    folder = Path(done.stdout.strip())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
