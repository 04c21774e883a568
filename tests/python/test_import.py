"""The cost of importing the package is bounded: nothing is built before it is used."""

from __future__ import annotations

import subprocess
import sys

UNBUILT = """
from hanzoai.pubsub import PubSubClient
from hanzoai.pubsub.generated import wire
from hanzoai.pubsub.model import Model
deferred = Model.model_config["defer_build"]  # not with a pydantic older than 2.14
print([kind for kind in Model.__subclasses__() if deferred and kind.__pydantic_complete__])
"""

TOGETHER = """
import sys
import threading
sys.setswitchinterval(1e-6)
from hanzoai.pubsub.generated.wire import SubscribedFrame
from hanzoai.pubsub.wire.codec import decode
FRAME = b'{"type":"subscribed","topics":["a"],"denied":[{"topic":"b","code":"internal"}]}'
threads, kinds, start = 8, [], threading.Barrier(8)
def read():
    start.wait()
    frame = decode(FRAME)
    kinds.append(type(frame) is SubscribedFrame and frame.denied[0].code)
for thread in [threading.Thread(target=read) for _ in range(threads)]:
    thread.start()
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
print(kinds)
"""

LOADED = """
import asyncio
import sys
before = set(sys.modules)
from hanzoai.pubsub import PubSub, PubSubClient
for client in (PubSubClient, PubSub):
    client("ws://127.0.0.1/ws", "t")
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in names - set(sys.stdlib_module_names) if name[0] != "_"))
ours = [name for name in set(sys.modules) - before if name.startswith("hanzoai.pubsub")]
print(sorted(name for name in ours if name.split(".")[2:3] in (["session"], ["wire"], ["http"])))
dear = {"bz2", "csv", "difflib", "email", "http.client", "importlib.metadata", "zipfile"}
print(sorted(dear & (set(sys.modules) - before)))
"""


HTTP = """
import asyncio
import sys
import threading
from hanzoai.pubsub import PubSubClient
begun, goes_on = threading.Event(), threading.Event()
imports = []
def audit(event, arguments):
    if event == "import" and arguments[0] == "httpx":
        begun.set()
        imports.append((threading.current_thread() is threading.main_thread(), goes_on.wait(10)))
sys.addaudithook(audit)
async def main():
    async with PubSubClient("ws://127.0.0.1:1/ws", "t", rest_attempts=1) as ps:
        first = asyncio.create_task(ps.occupancy("a.b"))
        await asyncio.to_thread(begun.wait)
        second = asyncio.create_task(ps.presence("a.b"))
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(first, second, return_exceptions=True)
asyncio.run(main())
print(imports)
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_import_builds_no_type_of_the_wire() -> None:
    assert run(UNBUILT) == "[]"


def test_threads_may_first_use_a_type_together() -> None:
    assert run(TOGETHER) == str(["internal"] * 8)


def test_neither_an_import_nor_a_new_client_loads_a_library_or_what_runs_a_connection() -> None:
    assert run(LOADED) == "['hanzoai']\n[]\n[]"


def test_the_first_calls_over_http_import_its_library_outside_the_event_loop() -> None:
    assert run(HTTP) == "[(False, True)]"
