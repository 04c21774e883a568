"""Tables of the TypeScript client's options, from the interfaces that declare them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hanzoai.pubsub.generated.defaults import CLIENT, LIMITS

SOURCES: Final = Path(__file__).resolve().parent.parent / "js" / "src"
OPTIONS: Final = "settings/options.ts"

_FIELD: Final = re.compile(
    r"^  (?:/\*\*(?P<text>(?:(?!\*/).)*)\*/\n  )?readonly (?P<name>\w+)\??: (?P<type>[^;]+);$",
    re.MULTILINE | re.DOTALL,
)
_DEFAULT: Final = re.compile(r"[;,.]? ?\b[Dd]efault:? (?P<default>(?:`[^`]*`|[^.;`])+)")
_NUMBERS: Final = {
    "2 ** 30": "1 GiB",
    "historyPageMax": f"{LIMITS.history_page_max:,}",
    "DAY": "a day",
}
_UNITS: Final = {
    "milliseconds": "ms",
    "a number": "",
    "a number of bytes": "bytes",
    "a number of messages": "messages",
}
_PREFIXES: Final = {"SendQueue": "sendQueue", "ReceiveQueue": "receiveQueue"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an interface.

    Attributes:
        name: Name of the option.
        type: Type, without `undefined`.
        default: Default value; empty if the comment names none.
        meaning: Effect of the option.
    """

    name: str
    type: str
    default: str
    meaning: str


def interface(name: str, file: str = OPTIONS) -> list[Option]:
    """Return the options that an interface declares.

    Raises:
        ValueError: The interface does not exist, or an option has no description.
    """
    text = (SOURCES / file).read_text(encoding="utf-8")
    body = re.search(rf"^export interface {name}\b[^\n]*\{{\n(.*?)^\}}", text, re.M | re.S)
    if body is None:
        raise ValueError(f"{file} has no interface {name}")
    found: list[Option] = []
    for match in _FIELD.finditer(body[1]):
        text = " ".join(re.sub(r"^\s*\*? ?", "", match["text"] or "", flags=re.M).split())
        if not text and name != "Waiting":
            # Options that all operations share are described once.
            every = {option.name: option for option in interface("Waiting", "runtime/waiting.ts")}
            if match["name"] in every:
                found.append(every[match["name"]])
                continue
        if not text:
            raise ValueError(f"{name}.{match['name']} has no description")
        kind = " ".join(match["type"].split()).replace(" | undefined", "")
        kind = _aliases().get(kind, kind).replace("Optional<", "Partial<")
        default = _DEFAULT.search(text)
        left = text if default is None else text[: default.start()] + text[default.end() :]
        meaning = left.strip().removeprefix(". ") or text
        meaning = meaning[:1].upper() + meaning[1:].rstrip(".") + "."
        found.append(
            Option(match["name"], kind, "" if default is None else default["default"], meaning)
        )
    return found


def table(name: str, file: str = OPTIONS, *, ranges: bool = False) -> str:
    """Return the options of an interface as a Markdown table.

    Args:
        name: Name of the interface.
        file: File that declares it.
        ranges: Whether the table has a column with the units and ranges that the client checks;
            otherwise, the descriptions contain them.
    """
    known = _ranges()
    head = ["option", "type", *(["unit, range"] if ranges else []), "default", "meaning"]
    lines = [head, ["---"] * len(head)]
    for option in interface(name, file):
        unit = [known[option.name]] if ranges else []
        cells = [f"`{option.type}`", *unit, _checked(name, option), option.meaning]
        lines.append([f"`{option.name}`", *(cell.replace("|", "\\|") for cell in cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _checked(name: str, option: Option) -> str:
    """Return the documented default, which must be the default of the specification.

    Raises:
        ValueError: They differ.
    """
    actual = _defaults().get((_PREFIXES.get(name, ""), option.name))
    if actual is None:
        return option.default
    sizes = {"MiB": 2**20, "GiB": 2**30}
    number, _, unit = option.default.partition(" ")
    stated = int(number.replace(",", "") or -1) * sizes.get(unit, 1)
    if stated != actual:
        raise ValueError(f"{name}.{option.name}: the comment says {option.default}, not {actual}")
    return option.default


def _defaults() -> dict[tuple[str, str], int]:
    """Return the defaults of the specification, by interface and option."""
    found = {("", _camel(name)): value for name, value in asdict(CLIENT).items()}
    found["", "maxPayload"] = LIMITS.max_payload
    found |= {("", "base"): found["", "retryBase"], ("", "cap"): found["", "retryCap"]}
    for queue in _PREFIXES.values():
        for field in ("messages", "bytes"):
            found[queue, field] = found["", queue + field.capitalize()]
    return found


def _ranges() -> dict[str, str]:
    """Return the unit and range of each number, from the checks."""
    checks = (SOURCES / "settings/checks.ts").read_text(encoding="utf-8")
    options = (SOURCES / "settings/option_checks.ts").read_text(encoding="utf-8")
    named = dict(re.findall(r"const ([A-Z]+): Range = \[(.*?)\];", checks + options))
    found: dict[str, str] = {}
    for name, kind in re.findall(r"^ +(\w+): ([A-Z]+|\[\d[^\]]+\]),$", options, re.MULTILINE):
        if kind not in named and not kind.startswith("["):
            continue
        inside = named.get(kind, kind.strip("[]"))
        low, high, unit = (part.strip() for part in inside.split(","))
        first, last = (_NUMBERS.get(n) or f"{int(n):,}" for n in (low, high))
        found[name] = f"{_UNITS[unit.strip(chr(39))]}, {first} to {last}".removeprefix(", ")
    return found


def _aliases() -> dict[str, str]:
    """Return the types that have only a few values, by name."""
    files = (OPTIONS, "settings/session.ts", "values.ts")
    text = "".join((SOURCES / file).read_text(encoding="utf-8") for file in files)
    return dict(re.findall(r"^export type (\w+) = ('[^;]*'|number \| Date);$", text, re.MULTILINE))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
