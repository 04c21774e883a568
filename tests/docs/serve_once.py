"""`hanzo-pubsub serve` as the pages have it, on free ports: starts, says it is ready, ends well."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("hanzo-pubsub")


def main(argv: list[str]) -> int:
    command = [str(PROGRAM), "serve", *argv, "--http-port", "0", "--ws-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            return server.wait(10) or 1
        assert json.loads(line)["event"] == "ready"
        server.send_signal(signal.SIGTERM)
        return server.wait(10)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
