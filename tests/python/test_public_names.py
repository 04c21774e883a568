"""The public names of the package."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import hanzoai.pubsub
from hanzoai.pubsub import BlockingTopicHandle, PubSub, PubSubClient, TopicHandle, values
from hanzoai.pubsub.runtime import handlers
from hanzoai.pubsub.settings import options

BUILT_IN = {"Any", "Data", "Awaitable", "Callable", "Literal", "Mapping", "Sequence"}


def test_every_public_name_exists_and_is_listed_once() -> None:
    names = hanzoai.pubsub.__all__
    assert len(names) == len(set(names))
    assert sorted(names, key=lambda name: (name.startswith("_"), name)) == [
        *sorted(name for name in names if not name.startswith("_")),
        "__version__",
    ]
    for name in names:
        assert getattr(hanzoai.pubsub, name) is not None
        assert name in dir(hanzoai.pubsub)
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = hanzoai.pubsub.NoSuchName  # type: ignore[attr-defined]


def test_type_checkers_see_the_names_that_exist() -> None:
    from pathlib import Path

    source = Path(hanzoai.pubsub.__file__).read_text(encoding="utf-8")
    imports = source.partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    for name in hanzoai.pubsub.__all__:
        assert name in imports


def test_every_error_of_the_table_is_public() -> None:
    from hanzoai.pubsub.errors import CLASSES

    assert set(CLASSES) <= set(hanzoai.pubsub.__all__)


def test_every_public_class_and_method_has_a_docstring() -> None:
    for name in hanzoai.pubsub.__all__:
        value = getattr(hanzoai.pubsub, name)
        if not inspect.isclass(value):
            continue
        assert value.__doc__, name
        for member, found in inspect.getmembers(value, inspect.isfunction):
            if not member.startswith("_") and found.__module__.startswith("hanzoai.pubsub"):
                assert found.__doc__, f"{name}.{member}"


@pytest.mark.parametrize("name", ["Denial", "Sender", "SendPolicy", "ReceivePolicy"])
def test_types_that_programs_need_for_annotations_are_public(name: str) -> None:
    assert name in hanzoai.pubsub.__all__


@pytest.mark.parametrize("cls", [PubSubClient, PubSub, TopicHandle, BlockingTopicHandle])
def test_every_type_of_a_public_signature_is_public(cls: type) -> None:
    homes = (values, handlers, options)
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") and name != "__init__":
            continue
        for annotation in method.__annotations__.values():
            for used in re.findall(r"\b[A-Z]\w+", str(annotation)):
                if any(used in vars(home) for home in homes) and used not in BUILT_IN:
                    assert used in hanzoai.pubsub.__all__, f"{name}: {used}"


def members(cls: type) -> dict[str, inspect.Signature | None]:
    return {
        name: None if isinstance(value, property) else inspect.signature(value)
        for name, value in vars(cls).items()
        if not name.startswith("_") or name == "__init__"
    }


def test_the_blocking_client_has_the_methods_of_the_other_with_the_same_parameters() -> None:
    blocking, asynchronous = members(PubSub), members(PubSubClient)
    assert list(blocking) == list(asynchronous)
    for name, signature in asynchronous.items():
        twin = blocking[name]
        if signature is None or twin is None:
            assert signature is twin
            continue
        assert [str(p) for p in twin.parameters.values()] == [
            str(p) for p in signature.parameters.values()
        ], name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (hanzoai.pubsub.BlockingTopicHandle, hanzoai.pubsub.TopicHandle),
        (hanzoai.pubsub.BlockingBatch, hanzoai.pubsub.Batch),
    ],
)
def test_the_blocking_helpers_have_the_parameters_of_the_others(one: type, other: type) -> None:
    mine, theirs = members(one), members(other)
    for name, signature in theirs.items():
        if name == "__init__" or signature is None:
            continue
        twin = mine[name]
        assert twin is not None
        assert list(map(str, twin.parameters.values())) == list(
            map(str, signature.parameters.values())
        )


def test_an_exception_in_a_handler_is_visible_without_logging_configuration() -> None:
    program = (
        "import asyncio\n"
        "from hanzoai.pubsub.testing import MemoryServer\n"
        "async def main():\n"
        "    async with MemoryServer() as server:\n"
        "        failed = asyncio.Event()\n"
        "        def show(message):\n"
        "            failed.set()\n"
        "            raise ValueError('a mistake')\n"
        "        async with server.client() as ps:\n"
        "            await ps.subscribe('a.b', on_message=show)\n"
        "            await ps.publish('a.b', {'data': 'a secret'})\n"
        "            await asyncio.wait_for(failed.wait(), 10)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "A handler raised an exception (topic a.b)" in done.stderr
    assert "ValueError: a mistake" in done.stderr
    assert "secret" not in done.stderr


def test_importing_the_package_or_its_pytest_plugin_loads_neither_client_nor_server() -> None:
    program = (
        "import sys, hanzoai.pubsub, hanzoai.pubsub.testing.plugin\n"
        "heavy = {'httpx', 'websockets', 'pydantic', 'pubsub_server', 'hanzoai.pubsub.client'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_importing_a_client_brings_in_no_library_that_only_some_programs_need() -> None:
    script = (
        "import sys; from hanzoai.pubsub import PubSub, PubSubClient; "
        "print([name for name in ('httpx', 'rich', 'tenacity', 'websockets') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_fallback_imports_httpx_outside_of_the_event_loop() -> None:
    program = (
        "import asyncio, sys, threading\n"
        "from hanzoai.pubsub import PubSubClient\n"
        "async def main():\n"
        "    loop, found = asyncio.get_running_loop(), asyncio.Event()\n"
        "    class Finder:\n"
        "        def find_spec(self, name, path=None, target=None):\n"
        "            if name == 'httpx':\n"
        "                print(threading.current_thread().name)\n"
        "                loop.call_soon_threadsafe(found.set)\n"
        "    sys.meta_path.insert(0, Finder())\n"
        "    ps = PubSubClient('ws://127.0.0.1:1/ws', token='t')\n"
        "    task = asyncio.ensure_future(ps.connect())\n"
        "    await found.wait()\n"
        "    task.cancel()\n"
        "    await ps.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "hanzoai.pubsub import of httpx"
