"""Checks of single option values; each error names the option, the problem and the remedy."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from hanzoai.pubsub.claims import is_encodable
from hanzoai.pubsub.durations import seconds_of
from hanzoai.pubsub.errors import InvalidOption
from hanzoai.pubsub.near_names import did_you_mean

_DAY: Final = 86_400.0
_GIB: Final = 1 << 30
TOKEN_MAX: Final = 16_384
"""Maximum characters of a token."""
_NAME_MAX: Final = 128
_PROXY_SCHEMES: Final = frozenset({"http", "https", "socks5", "socks5h", "socks4", "socks4a"})
_NUMBERS: Final = {1: "one argument", 2: "two arguments"}


def invalid(field: str, problem: str, remedy: str | None) -> InvalidOption:
    """The error of an option or argument; `problem` follows its name.

    It contains no value that may be a secret, such as a URL.
    """
    return InvalidOption(f"`{field}` {problem}.", remedy=remedy, field=field)


def check_number(name: str, value: object, low: float, high: float, unit: str) -> float:
    """Return a number in a range as a float; reject NaN and bools."""
    return float(_in_range(name, value, low, high, unit))


def _in_range(name: str, value: object, low: float, high: float, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or is_nan(value):
        raise invalid(name, f"is {kind(value)}, not a number", _give(unit, low, high))
    if not low <= value <= high:
        raise invalid(name, "is out of range", _give(unit, low, high))
    return value


def _give(unit: str, low: float, high: float) -> str:
    if high == math.inf:
        return f"Give {unit}, {_plain(low)} or more."
    return f"Give {unit} from {_plain(low)} to {_plain(high)}."


def _plain(bound: float) -> str:
    """Write a bound without an exponent."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def check_seconds(name: str, value: object, low: float = 0.001, high: float = _DAY) -> float:
    """Return the seconds of a number or a timedelta in a range."""
    seconds = seconds_of(value) if isinstance(value, timedelta) else value
    return check_number(name, seconds, low, high, "seconds or a timedelta,")


def check_whole(
    name: str, value: object, low: int = 1, high: float = _GIB, unit: str = "a number"
) -> None:
    """Check a whole number in a range; `high` can be infinite."""
    if isinstance(value, float):
        raise invalid(name, "is a float", f"Give {unit} as an int.")
    _in_range(name, value, low, high, unit)


def check_text(name: str, value: object, what: str) -> None:
    """Check a string that UTF-8 can encode."""
    if not isinstance(value, str) or not is_encodable(value):
        problem = "a str that UTF-8 cannot encode" if isinstance(value, str) else kind(value)
        raise invalid(name, f"is {problem}", f"Give {what} as a str.")


def check_flag(name: str, value: object) -> None:
    """Check a bool."""
    if not isinstance(value, bool):
        raise invalid(name, f"is {kind(value)}, not a bool", "Give True or False.")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Check one of a few words; the remedy suggests the nearest one."""
    if value not in choices:
        listed = ", ".join(f"`{choice}`" for choice in choices)
        hint = did_you_mean(str(value), choices)
        raise invalid(name, "has an unknown value", f"{hint}Use one of {listed}.")


def check_function(
    name: str, function: object, remedy: str | None = None, arguments: int = 1
) -> None:
    """Check None, or a function that accepts this many arguments."""
    if function is None:
        return
    if not callable(function):
        raise invalid(
            name,
            f"is {kind(function)}, not a function",
            remedy or "Pass a function or a coroutine function.",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some functions written in C have no signature
    try:
        signature.bind(*(None,) * arguments)
    except TypeError:
        raise invalid(
            name,
            f"cannot be called with {_NUMBERS[arguments]}",
            remedy or f"Pass a function or a coroutine function of {_NUMBERS[arguments]}.",
        ) from None


def check_instance(name: str, value: object, wanted: type, remedy: str | None = None) -> None:
    """Check the class of a value; by default, the remedy names it in `hanzoai.pubsub`."""
    if not isinstance(value, wanted):
        raise invalid(
            name,
            f"is {kind(value)}, not {wanted.__name__}",
            remedy or f"Build it with hanzoai.pubsub.{wanted.__name__}(...).",
        )


def is_nan(value: object) -> bool:
    """Return whether a value is NaN."""
    return isinstance(value, float) and math.isnan(value)


def kind(value: object) -> str:
    """Name the type of a wrong value without showing the value."""
    return "None" if value is None else "NaN" if is_nan(value) else type(value).__name__


def check_token(token: object, field_name: str = "token") -> str:
    """Check a token from any source, and strip blanks and line ends.

    Args:
        token: With or without `Bearer `.
        field_name: What to call it in the error.

    Raises:
        InvalidOption: It cannot be a token. The error does not show it.
    """
    if not isinstance(token, str):
        raise invalid(
            field_name,
            f"is {kind(token)}, not a string",
            "Give the bearer token or API key as a str.",
        )
    token = token.strip()
    body = bare_token(token)
    problem = (
        "is empty"
        if not body
        else f"is longer than {TOKEN_MAX:,} characters"
        if len(token) > TOKEN_MAX
        else "has spaces, control characters or characters that are not ASCII"
        if not all("!" <= character <= "~" for character in body)
        else None
    )
    if problem is not None:
        raise invalid(
            field_name, problem, "Give the bearer token or API key, with or without `Bearer `."
        )
    return token


def bare_token(token: str) -> str:
    """Return a token without the prefix `Bearer`, in any case (HIP-56, ambiguity E1)."""
    scheme, _, rest = token.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else token


def check_name(name: object) -> None:
    """Check the name of a program, which the client sends to the server."""
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not name.isprintable():
        raise invalid(
            "name",
            "is not a short printable string",
            f"Give 1 to {_NAME_MAX} printable characters.",
        )


def check_proxy(proxy: object) -> None:
    """Check the URL of a proxy, or whether to use that of the system."""
    if not isinstance(proxy, str | bool):
        raise invalid(
            "proxy",
            f"is {kind(proxy)}",
            "Give a URL, True for the system's proxy, or False for none.",
        )
    if isinstance(proxy, str) and not _is_proxy_url(proxy):
        raise invalid(
            "proxy",
            "is not the URL of a proxy",
            "Write it like http://proxy.example.com:3128; a SOCKS proxy begins with socks5h://.",
        )


def _is_proxy_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in _PROXY_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
