"""Shared code of commands that use a server: the client, the signals, the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hanzoai.pubsub.cli.arguments import usage_error
from hanzoai.pubsub.cli.exits import Exit, exit_for
from hanzoai.pubsub.cli.stdio import file_name
from hanzoai.pubsub.errors import AuthRefused, PubSubError
from hanzoai.pubsub.near_names import misspelt_variable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Coroutine

    from hanzoai.pubsub.cli.output import Output
    from hanzoai.pubsub.client import PubSubClient
    from hanzoai.pubsub.settings.options import SendQueue
    from hanzoai.pubsub.values import StateChange, TokenContext

DEFAULT_TIMEOUT: Final = 10.0
"""Timeout of a request and of the first connection, in seconds."""
_SIGNALS: Final = {
    "SIGINT": Exit.INTERRUPTED,
    "SIGTERM": Exit.TERMINATED,
    "SIGHUP": Exit.HUNG_UP,
}


def server_urls(args: Namespace) -> tuple[str, str | None]:
    """URL and REST URL, both from the arguments or both from the environment.

    Ends the program if there is no URL.
    """
    rest_url: str | None = args.rest_url
    if not args.url:
        rest_url = rest_url or os.environ.get("HANZO_PUBSUB_REST_URL") or None
    url: str | None = args.url or os.environ.get("HANZO_PUBSUB_URL")
    if not url:
        usage_error(
            "No URL was given.",
            remedy="Pass --url or set HANZO_PUBSUB_URL; `hanzo-pubsub serve --dev` runs a server."
            + misspelt_variable("HANZO_PUBSUB_URL", os.environ),
        )
    return url, rest_url


def token_source(args: Namespace, output: Output) -> Callable[[], str | None]:
    """The source of the token; a file is read again at every call.

    Raises:
        AuthRefused: The returned function raises it if the file cannot be read or is empty.
    """
    if args.token and args.token_file:
        usage_error("--token and --token-file cannot be used together.", remedy="Pass one of them.")
    if args.token:
        output.note(
            "warning",
            "--token is visible to other users of this machine in the list of processes; "
            "use --token-file or HANZO_PUBSUB_TOKEN",
            style="yellow",
        )
        token: str = args.token
        return lambda: token
    if args.token_file:
        path = Path(file_name(args.token_file))
        return lambda: read_token(path)
    return lambda: os.environ.get("HANZO_PUBSUB_TOKEN") or None


def read_token(path: Path) -> str:
    """The token in a file, without surrounding white space."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(65536).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AuthRefused(
            f"The token file {path} cannot be read: {why}.", remedy="Check --token-file."
        ) from error
    if not text:
        raise AuthRefused(f"The token file {path} is empty.", remedy="Check --token-file.")
    return text


def build_client(
    args: Namespace,
    output: Output,
    *,
    on_state: Callable[[StateChange], None] | None = None,
    on_error: Callable[[Exception], None] | None = None,
    send_queue: SendQueue | None = None,
) -> PubSubClient:
    """The client for the arguments, not connected yet.

    It prints errors that no call can raise, unless ``on_error`` is given.
    """
    from hanzoai.pubsub.client import PubSubClient

    (url, rest_url), source = server_urls(args), token_source(args, output)
    token = source()
    if token is None:
        raise PubSubError(
            "unauthenticated",
            "No token was given.",
            remedy="Set HANZO_PUBSUB_TOKEN or pass --token-file; for a development server: "
            "hanzo-pubsub token --user NAME." + misspelt_variable("HANZO_PUBSUB_TOKEN", os.environ),
        )

    def renew(_context: TokenContext) -> str:
        return source() or ""

    return PubSubClient(
        url,
        None if args.token_file else token,
        get_token=renew if args.token_file else None,
        transport=args.transport,
        rest_url=rest_url,
        allow_insecure=args.allow_insecure,
        name="hanzo-pubsub",
        on_state=on_state,
        on_error=on_error or (lambda error: notify(output, error)),
        send_queue=send_queue,
    )


async def connect(ps: PubSubClient, within: float, timeout: float | None) -> asyncio.Timeout:
    """Connect, and return the context that ends when `--timeout` is over.

    Args:
        ps: The client.
        within: Maximum seconds for the connection, if `timeout` is not shorter.
        timeout: Seconds from now; None for no limit.

    Raises:
        PubSubError: There is no connection in time.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    await ps.connect(within if timeout is None else min(within, timeout))
    return asyncio.timeout(None if timeout is None else timeout - (loop.time() - began))


def report(output: Output, error: Exception, **fields: Any) -> None:
    """Print an error, with further fields of its JSON output."""
    if isinstance(error, PubSubError):
        output.error(error, **fields)
    else:
        output.note("error", type(error).__name__, style="red")


def notify(output: Output, error: Exception) -> None:
    """Print an error that no call raises."""
    if isinstance(error, PubSubError) and error.code == "going_away":
        # A restarting server sends this. No action is needed: the client reconnects.
        output.note("info", error.message, code=error.code)
    else:
        report(output, error)


def run(output: Output, args: Namespace, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the asynchronous part of a command.

    Prints errors and converts them to the exit code. SIGINT, SIGTERM and SIGHUP cancel the work,
    which may still print its results; the exit code is then 128 and the number of the signal.
    """
    _log(args.verbose)
    received: list[Exit] = []

    async def guarded() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def interrupt(code: Exit) -> None:
            received.append(code)
            task.cancel()

        for name, code in _SIGNALS.items():
            try:
                number = getattr(signal, name)
                # `nohup` and `&` in a script start a program that ignores a signal.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, interrupt, code)
            except (AttributeError, NotImplementedError, RuntimeError):
                break  # Windows, or a loop outside of the main thread: rely on KeyboardInterrupt
        try:
            return await work()
        finally:
            # A closing loop removes its handlers last, and a signal would find its pipe closed.
            with contextlib.suppress(ValueError):
                signal.set_wakeup_fd(-1)

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if received:
            return received[0]
        raise
    except PubSubError as error:
        output.error(error)
        return exit_for(error)


def _log(verbosity: int) -> None:
    if not verbosity:
        # Commands report errors themselves.
        logging.getLogger("hanzoai.pubsub").addHandler(logging.NullHandler())
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("hanzoai.pubsub")
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
