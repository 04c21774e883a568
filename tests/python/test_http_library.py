"""The client checks the version of httpx when it imports it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httpx
import pytest

from hanzoai.pubsub import UsageError
from hanzoai.pubsub.http import library

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio
from hanzoai.pubsub import PubSubClient

async def main():
    async with asyncio.timeout(60):
        ps = PubSubClient(url="ws://127.0.0.1:9/ws", token="a.b.c", transport="{transport}")
        try:
            {call}
        except Exception as error:
            print(type(error).__name__, error.code, error)
        await ps.close()

asyncio.run(main())
"""


def test_the_installed_version_has_what_the_client_uses() -> None:
    library.check(httpx)


def test_an_error_names_the_version_and_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"httpx 1\.0\.dev6 .*AsyncBaseTransport") as error:
        library.check(SimpleNamespace(__version__="1.0.dev6", AsyncClient=object))
    assert 'pip install "httpx<1"' in error.value.remedy


@pytest.mark.parametrize(
    ("transport", "call"),
    [
        ("auto", 'await anext(ps.history("demo.a"))'),
        ("sse", "await ps.connect()"),
    ],
)
def test_a_program_with_a_version_that_has_another_api_gets_this_error(
    tmp_path: Path, transport: str, call: str
) -> None:
    (tmp_path / "httpx").mkdir()
    (tmp_path / "httpx" / "__init__.py").write_text('__version__ = "1.0.0"\nclass Client: ...\n')
    program = PROGRAM.format(transport=transport, call=call)
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("UsageError usage httpx 1.0.0 is installed"), run.stdout
    assert 'pip install "httpx<1"' in run.stdout
