"""Answers like the API of a model, with a recorded answer."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator

RECORDED: Final = ROOT / "spec" / "models" / "openai-responses.sse"


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(RECORDED.read_bytes())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def model_api() -> Generator[dict[str, str]]:
    """Run the API; yields the variables with which OpenAI's client finds it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        yield {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
