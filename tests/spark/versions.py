"""Runs each use with other versions of Spark.

`python -m tests.spark.versions PYTHON[:connect] … [WORD …]`. With words, only uses that contain one
of them run. PYTHON is the interpreter of an environment with this version, created for example by

    uv venv /tmp/spark40
    uv pip install --python /tmp/spark40 'pyspark==4.0.1' pyarrow 'pandas<3' \
        websockets httpx httpx-sse pydantic tenacity

and, for `:connect`, with `pyspark[connect]`. Prints a table; exits with 1 if something failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.server_process import serve

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
LIMIT = 540
"""Maximum seconds for all uses of one version."""


def probe(interpreter: str, mode: str, words: Sequence[str]) -> tuple[str, dict[str, str | None]]:
    """Run all uses; return the version, and the problem of each use."""
    with tempfile.TemporaryDirectory() as folder:
        rate = {"publish_rate_service": "1000000", "history_max_messages": "10000"}
        server = serve(Path(folder), **rate)
        running = next(server)
        process = subprocess.Popen(
            [interpreter, str(ROOT / "tests" / "spark" / "version_probe.py"), mode, *words],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "python"),
                "PROBE_URL": running.url,
                "PROBE_TOKEN_FILE": str(running.token_file),
                "PROBE_ADMIN": running.admin,
            },
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            out, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            out += '\n{"use": "what follows", "problem": "not done in time"}'
        finally:
            server.close()
    output = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if not output:
        return mode, {"start": f"ended with {process.returncode}"}
    version = next((each["version"] for each in output if "version" in each), "?")
    return f"{version} {mode}", {each["use"]: each["problem"] for each in output if "use" in each}


def main(arguments: list[str]) -> int:
    """Probe each interpreter, and print a table."""
    failed = False
    words = [argument for argument in arguments if "/" not in argument]
    for argument in arguments:
        if argument in words:
            continue
        interpreter, _, mode = argument.partition(":")
        version, found = probe(interpreter, mode or "classic", words)
        for use, problem in found.items():
            failed = failed or problem is not None
            print(f"{version:16} {use:24} {problem or 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
