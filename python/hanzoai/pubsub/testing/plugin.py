"""The pytest plugin: fixtures for programs that use Hanzo PubSub.

``pubsub_server``
    The reference server on free ports: ``.ws``, ``.http``, ``.token(...)``, ``.faults``. Pass
    settings by ``@pytest.mark.pubsub_server(history_max_messages=10)``. Set its scope in the ini
    file, for example ``pubsub_server_scope = session`` (default ``function``).

``pubsub_memory``
    A ``MemoryServer`` with a clock that the test moves; takes the same marker.

Importing this module imports neither the client nor the server.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pytest

from hanzoai.pubsub.testing import standstill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from hanzoai.pubsub.testing.server import MemoryServer
    from hanzoai.pubsub.testing.threaded import ThreadedServer

MARKER: Final = "pubsub_server"

Fixture = TypeVar("Fixture")


def _asynchronous() -> Callable[[Fixture], Fixture]:
    try:
        import pytest_asyncio
    except ImportError:  # the plugin of anyio runs plain fixtures that are asynchronous
        return cast("Callable[[Fixture], Fixture]", pytest.fixture)
    return cast("Callable[[Fixture], Fixture]", pytest_asyncio.fixture)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting of the ini-file."""
    parser.addini(
        "pubsub_server_scope",
        "how long one `pubsub_server` runs: function, module, session",
        default="function",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and let each `MemoryServer` write to the terminal."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**settings): settings of the fixtures `pubsub_server`, `pubsub_memory`",
    )
    config.add_cleanup(standstill.report_by(_on_the_terminal(config)))


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini("pubsub_server_scope")


@pytest.fixture(scope=_scope)
def pubsub_server(request: pytest.FixtureRequest) -> Iterator[ThreadedServer]:
    """The reference server on free ports, in a thread of its own."""
    from hanzoai.pubsub.testing.threaded import ThreadedServer

    with ThreadedServer(**_settings(request)) as server:
        yield server


@_asynchronous()
async def pubsub_memory(request: pytest.FixtureRequest) -> AsyncIterator[MemoryServer]:
    """A server in memory, and a clock that only the test moves."""
    from hanzoai.pubsub.testing.server import MemoryServer

    async with MemoryServer(**_settings(request)) as server:
        yield server


def _on_the_terminal(config: pytest.Config) -> Callable[[str], None]:
    """Write past pytest's capture: a test that hangs would not show captured output."""

    def tell(sentence: str) -> None:
        capture = cast("Any", config.pluginmanager.getplugin("capturemanager"))
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{test}: {sentence}\n")
            sys.stderr.flush()

    return tell


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker(MARKER)
    return {} if marker is None else dict(marker.kwargs)
