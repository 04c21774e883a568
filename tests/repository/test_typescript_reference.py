"""The generated TypeScript reference agrees with the sources."""

from __future__ import annotations

import re
from typing import Final

from scripts.typescript_reference import PAGES, page
from scripts.typescript_sources import declared, entries, exported, members_of

PLATFORM: Final = frozenset(
    {
        "AbortSignal",
        "AsyncGenerator",
        "AsyncIterable",
        "AsyncIterableIterator",
        "Date",
        "Error",
        "Exclude",
        "Headers",
        "Iterable",
        "MaybeRefOrGetter",
        "NonNullable",
        "Omit",
        "Promise",
        "PromiseLike",
        "PropertyKey",
        "ReactNode",
        "ReadableStream",
        "Readonly",
        "ReadonlyMap",
        "Record",
        "ShallowRef",
        "Symbol",
        "Uint8Array",
    }
)
"""Names of the language, of browsers, and of React and Vue."""
STEPS: Final = frozenset({"Glob", "Matched"})
"""Steps of the computed type `PayloadOf`, which nobody needs alone."""


def test_every_type_that_a_page_shows_is_exported() -> None:
    declarations = [each for entry in entries().values() for each in exported(entry)]
    exports = {each.name for each in declarations}
    sources = " ".join(each.source for each in declarations)
    shown = set[str]()
    for name in PAGES:
        text = page(name)
        types = re.findall(r"```typescript\n(.*?)```", text, re.S)
        types += re.findall(r"^\| `[^`]*` \| `((?:[^`|]|\\\|)*)` \|", text, re.M)
        shown.update(_types(" ".join(types)))
    parameters = set(re.findall(r"[<,(]\s*(?:const |infer )?([A-Z]\w*)(?= extends| = )", sources))
    assert not shown - exports - parameters - PLATFORM - STEPS


def _types(code: str) -> list[str]:
    bare = re.sub(r"'[^'\n]*'|`[^`\n]*`|//.*|/\*.*?\*/", "", code, flags=re.S)
    return re.findall(r"(?<![\w.])[A-Z]\w*", bare)


def test_a_value_that_may_be_absent_is_marked() -> None:
    text = page("typescript-client")
    assert "| `sender?` | `Sender` |" in text
    assert "| `clientId` | `string \\| undefined` |" in text
    assert "| `maxPayload?` | `number` |" in page("typescript-tools")
    assert "| `topic` | `string` | The topic, without wildcards. |" in text


def test_fields_with_a_value_and_those_of_a_constructor_are_members() -> None:
    topic = {each.name: each for each in members_of(declared("signed/topic.ts")["SignedTopic"])}
    assert (topic["forged"].text, topic["forged"].is_method) == ("number", False)
    assert "new HanzoChatTransport(options: HanzoChatTransportOptions)" in page(
        "typescript-streams"
    )
    [name] = [
        each for each in members_of(declared("topic.ts")["TopicHandle"]) if each.name == "name"
    ]
    assert (name.text, name.is_method) == ("Topic", False)
