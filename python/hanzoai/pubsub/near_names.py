"""Suggests a known name for an unknown one, and names a variable that is probably misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME_MAX: Final = 128
_BEGINNING: Final = 3
"""Minimum letters of the beginning of a name."""
_NEAR: Final = 0.65
"""Minimum likeness of the ending of a variable: `TOKN` and `URI` are near, `REST_URL` is not."""
_LISTED: Final = 8
"""Maximum names that end with what was written, such as `open_timeout` for `timeout`."""


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Return the start of a remedy, up to the next sentence; empty if no name is near.

    Args:
        wrong: What was written, in any case.
        names: The known names.
    """
    if not wrong:
        return ""
    low = wrong[:_NAME_MAX].lower()
    known = {name.lower(): name for name in names}
    begun = None
    if len(low.lstrip("-")) >= _BEGINNING:
        begun = next((name for name in known if name.startswith(low)), None)
    ended = [known[name] for name in known if name.endswith((f"_{low}", f"-{low.lstrip('-')}"))]
    if begun is None and len(ended) > 1:
        listed = "`, `".join(sorted(ended)[:_LISTED])
        return f"Did you mean one of `{listed}`? "
    if begun is None:
        # Loaded for an error alone.
        import difflib

        begun = next(iter(difflib.get_close_matches(low, known, n=1)), None)
    return "" if begun is None else f"Did you mean `{known[begun]}`? "


def misspelt_variable(meant: str, environ: Mapping[str, str]) -> str:
    """Return a question for the end of a remedy if a variable has nearly the name of a missing one.

    Args:
        meant: The variable that is not set, such as `HANZO_PUBSUB_TOKEN`.
        environ: All variables. Only their names matter.
    """
    import difflib

    prefix, _, ending = meant.rpartition("_")
    for name in environ:
        written = name.removeprefix(f"{prefix}_")
        if written == name or name == meant:
            continue
        if difflib.SequenceMatcher(None, written[:_NAME_MAX], ending).ratio() >= _NEAR:
            return f" {name[:_NAME_MAX]} is set: did you mean {meant}?"
    return ""
