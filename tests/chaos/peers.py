"""The SDKs of both languages as processes: the peers of tests/conformance, with live events."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.conformance.peer_process import ROOT, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.conformance.peer_process import Json

ESBUILD = ROOT / "node_modules" / ".bin" / "esbuild"
PEER = ROOT / "tests" / "conformance" / "peers" / "peer.ts"
PLACE = "tests/conformance/peers/peer.js"


class Peer(PeerProcess):
    """One process, whose events are passed to functions immediately."""

    def __init__(self, *given: Any) -> None:
        self._wanted: dict[str, Callable[[Json], None]] = {}
        super().__init__(*given)

    def want(self, name: str, take: Callable[[Json], None]) -> None:
        """Pass the events with this name to a function."""
        self._wanted[name] = take

    async def reset(self) -> list[Json]:
        self._wanted.clear()
        return await super().reset()

    def _receive(self, name: str, event: Json) -> None:
        of, _, rest = name.rpartition("/")
        take = self._wanted.get(rest)
        if take is None:
            super()._receive(name, event)
        elif of == str(self._round):
            take(event)


@contextmanager
def bundled() -> Generator[Path]:
    """Bundle the TypeScript peer; yield its folder, and delete it at the end."""
    cache = ROOT / "node_modules" / ".cache"
    cache.mkdir(exist_ok=True)
    # Inside the repository, so that Node finds the packages.
    with TemporaryDirectory(dir=cache) as folder:
        target = Path(folder) / PLACE
        (Path(folder) / "package.json").write_text('{"type":"module"}\n', encoding="utf-8")
        subprocess.run(
            [
                *(ESBUILD, PEER, "--bundle", "--format=esm", "--platform=node", "--sourcemap"),
                *("--packages=external", "--log-level=warning", f"--outfile={target}"),
            ],
            cwd=ROOT,
            check=True,
            timeout=120,
        )
        yield Path(folder)
