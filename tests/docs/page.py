"""Runs the blocks of one page, one after the other, against a real server."""

from __future__ import annotations

import ast
import asyncio
import builtins
import gc
import inspect
import io
import json
import os
import re
import shlex
import signal
import sys
import types
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from hanzoai.pubsub import PubSubClient
from tests import forked
from tests.docs.blocks import ROOT, WHOLE, prelude
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from hanzoai.pubsub.testing import ThreadedServer
    from tests.docs.blocks import Block

PATIENCE: Final = 60
BINARIES: Final = Path(sys.executable).parent
SERVE_ONCE: Final = Path(__file__).with_name("serve_once.py")
SHELL: Final = f"""set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
hanzo-pubsub() {{
  if [ "$1" = serve ] && [[ " $* " != *" --check-config "* ]]; then
    shift; {shlex.quote(sys.executable)} {shlex.quote(str(SERVE_ONCE))} "$@"
  elif [ "$BASHPID" != $$ ]; then
    exec hanzo-pubsub "$@"
  else
    command hanzo-pubsub "$@"
  fi
}}
pip() {{  # The packages are installed. Before a release, no index has them.
  [[ "$1 $2" = "install hanzoai."* ]]
  {shlex.quote(sys.executable)} -c 'import hanzoai.pubsub, pubsub_server'
}}
"""
PATTERN_URL: Final = re.compile(r"""url=(["'])(?:wss?|https?)://[^"']+\1""")


class Page:
    """One page, and the namespace, folder and environment that its blocks share.

    Args:
        server: The server to which the programs of the page connect.
        folder: The folder in which they run; it contains the files that the page shows.
        environ: The environment of the programs.
    """

    def __init__(self, server: ThreadedServer, folder: Path, environ: Mapping[str, str]) -> None:
        self.server = server
        self.folder = folder
        self.environ = dict(environ)
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"__name__": "page", "print": self._print, "server": server}
        self.names["settle"] = lambda: asyncio.sleep(0)
        self._whole = True
        self._printed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._background: list[tuple[Block, asyncio.subprocess.Process]] = []
        self._tests: list[str] = []

    async def run(self, path: Path, blocks: list[Block]) -> None:
        """Run every block that can run; the first failure names its place."""
        for block in blocks:
            if block.title is not None:
                file = self.folder / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            self._whole = path in WHOLE
            await self._execute(prelude(path) + "\nawait settle()", f"{path.name} (prelude)")
            for block in blocks:
                if block.directive == "not run":
                    continue
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self._block(block)
                except Exception as error:
                    raise AssertionError(
                        f"{block.place}: {type(error).__name__}: {error}"
                    ) from error
            for block, process in self._background:
                await self._end(block, process)
            await self._run_tests()

    async def _block(self, block: Block) -> None:
        match block.language:
            case "python" if "def test_" in block.text:
                self._add_tests(block)
            case "python" if self._whole or block.title is not None:
                await self._program(block)
            case "python" if "asyncio.run(" in block.text:
                await self._program(block)
            case "python":
                await self._python(block)
            case "sh" if "hanzo-pubsub " in block.text:
                await self._shell(block)
            case "http":
                await self._request(block)
            case "json":
                json.loads(block.text)
            case _:
                pass

    # ------------------------------------------------------------ Python

    async def _python(self, block: Block) -> None:
        running = asyncio.create_task(self._execute(self._local(block.text), block.place))
        if block.directive == "raises":
            (error,) = await asyncio.gather(running, return_exceptions=True)
            if type(error).__name__ != block.value:
                raise AssertionError(f"{block.value} was not raised") from error
            return
        if block.directive != "until":
            await running
            return
        wanted = len(self.lines) + int(block.value.split()[0])
        while len(self.lines) < wanted and not running.done():
            self._printed.clear()
            waiting = asyncio.create_task(self._printed.wait())
            await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if running.done():
            await running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(self.lines) >= wanted

    async def _execute(self, source: str, place: str) -> None:
        code = compile(source, place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        function = types.FunctionType(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            await cast("Awaitable[None]", function())
        else:
            await asyncio.to_thread(function)

    async def _program(self, block: Block) -> None:
        file = self.folder / (block.title or f"line_{block.line}.py")
        file.write_text(self._local(block.text), encoding="utf-8")
        code, text = await forked.run(file, env=self.environ, cwd=self.folder)
        assert code == 0, text

    def _add_tests(self, block: Block) -> None:
        file = self.folder / f"test_line_{block.line}.py"
        file.write_text(self._local(block.text), encoding="utf-8")
        self._tests.append(str(file))

    async def _run_tests(self) -> None:
        """Run the tests of all blocks in one process: starting pytest is slower than they are."""
        if not self._tests:
            return
        settings = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function")
        options = ("-q", "-p", "no:cacheprovider", "-W", "error", *(f"-o{s}" for s in settings))
        async with asyncio.timeout(PATIENCE):
            await self._finish(
                await self._start(sys.executable, "-m", "pytest", *options, *self._tests)
            )

    def _print(self, *values: object, **options: Any) -> None:
        out = io.StringIO()
        builtins.print(*values, file=out, **{k: v for k, v in options.items() if k != "flush"})
        self.lines.append(out.getvalue())
        self._loop.call_soon_threadsafe(self._printed.set)

    # ------------------------------------------------------------ shell

    async def _shell(self, block: Block) -> None:
        process = await self._start("bash", "-c", SHELL + self._local(block.text))
        if block.directive == "background":
            assert process.stderr is not None
            async for line in process.stderr:
                if b'"subscribed"' in line:
                    break
            else:
                raise AssertionError("it ended without having subscribed")
            self._background.append((block, process))
            return
        await self._finish(process)

    async def _end(self, block: Block, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await process.stdout.readline()
            assert line, f"{block.place}: it printed nothing"
            os.killpg(process.pid, signal.SIGINT)
            await process.communicate()

    async def _start(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=self.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def _finish(self, process: asyncio.subprocess.Process) -> str:
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode == 0, (out + err).decode()
        return out.decode()

    # ------------------------------------------------------------ HTTP

    async def _request(self, block: Block) -> None:
        head, _, body = block.text.partition("\n\n")
        first, *lines = head.splitlines()
        method, path = first.split()[:2]
        headers = dict(line.split(": ", 1) for line in lines)
        if "Authorization" in headers:
            headers["Authorization"] = f"Bearer {self.environ['HANZO_PUBSUB_TOKEN']}"
        if body.strip():
            headers.setdefault("Content-Type", "application/json")
        async with (
            http_client(base_url=self.server.http) as client,
            client.stream(method, path, headers=headers, content=body.strip() or None) as answer,
        ):
            expected = int(block.value) if block.directive == "status" else 200
            if answer.status_code not in ({200, 201} if expected == 200 else {expected}):
                raise AssertionError(f"{answer.status_code}: {(await answer.aread()).decode()}")

    # ------------------------------------------------------------ helpers

    def _local(self, text: str) -> str:
        """Insert the addresses of this server and a valid token into the text."""
        ws, http = self.server.ws, self.server.http
        text = PATTERN_URL.sub(f'url="{ws}", rest_url="{http}"', text)
        text = text.replace("ws://127.0.0.1:8057/ws", ws).replace("http://127.0.0.1:8056", http)
        others = self.server.running.server.others
        text = text.replace("events://127.0.0.1:7420", others["event_stream"])
        text = text.replace("hub://127.0.0.1:13000", others["hub"])
        return text.replace("Bearer ey...", self.environ["HANZO_PUBSUB_TOKEN"])

    async def _close(self) -> None:
        for _, process in self._background:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.communicate()
        for name, value in list(self.names.items()):
            if isinstance(value, PubSubClient):
                await value.close(0)
            elif name not in ("__builtins__", "server"):
                del self.names[name]
        self.names.clear()
        gc.collect()


def environment(server: ThreadedServer, folder: Path, key_file: Path) -> dict[str, str]:
    """Return a new user's environment: an empty home, the program on PATH, and a token."""
    return {
        "PATH": f"{BINARIES}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTEST_ADDOPTS": os.environ.get("PYTEST_ADDOPTS", ""),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "python", ROOT / "server-mock"))),
        forked.VARIABLE: forked.address(),
        "HANZO_PUBSUB_URL": server.ws,
        "HANZO_PUBSUB_REST_URL": server.http,
        "HANZO_PUBSUB_DEV_KEY_FILE": str(key_file),
        "HANZO_PUBSUB_TOKEN": server.running.token(
            "docs", kind="admin", sessions_owned=["abc"], agents=["bot1"], orgs=["acme"]
        ),
    }
