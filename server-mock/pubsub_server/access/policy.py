"""Access rules: what an identity may read and publish. HIP-56, Channel Access Control.

A file is `rules:` with a list of `{pattern, require, publish}`. The first rule whose pattern
matches a topic decides; without a match, nothing is allowed. `publish` does not depend on
`require`: if absent, services may publish; `true`, services and users who meet `require`; `false`,
no one; `{require: …}`, users who meet that requirement. Administrators may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hanzoai.pubsub.topics import is_wildcard
from pubsub_server.access import requirements, rule_patterns
from pubsub_server.settings import documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pubsub_server.access.requirements import Requirement
    from pubsub_server.access.rule_patterns import RulePattern
    from pubsub_server.auth.identity import Identity

DEFAULT_RULES = Path(__file__).with_name("default_rules.yaml")
DEV_RULES = Path(__file__).with_name("dev_rules.yaml")
MAX_RULES = 10_000
MAX_COMPARED = 1_000_000
"""Maximum pairs of segments that a start compares to find rules that never apply: 0.2 s."""
MAX_KNOWN = 10_000
"""Maximum topics for which the matching rule is cached."""


class RulesError(ValueError):
    """A rules file is wrong; the text names file, line and rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One access rule.

    Attributes:
        number: Its place in its file, from 1.
        source: Name of the file.
        pattern: Which topics it decides on.
        require: Who may subscribe.
        publish: Who may publish: None for services, False for no one, True for services and
            users who meet `require`, or a requirement.
    """

    number: int
    source: str
    pattern: RulePattern
    require: Requirement
    publish: bool | Requirement | None

    @property
    def title(self) -> str:
        """Its name in messages: the file and the number of the rule."""
        return f"rule {self.number} of {self.source} (`{self.pattern.text}`)"


@dataclass(frozen=True, slots=True)
class Access:
    """What one identity may do with one topic or pattern, and why."""

    subscribe: bool
    publish: bool
    rule: str | None
    reason: str


class Policy:
    """The rules, indexed by their first segment. No method does I/O or waits."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._known: dict[str, tuple[Rule, dict[str, str]] | None] = {}
        self._by_head: dict[str, tuple[Rule, ...]] = {}
        heads = {rule.pattern.segments[0] for rule in self.rules}
        self._anywhere = tuple(r for r in self.rules if _open_headed(r))
        for head in heads:
            self._by_head[head] = tuple(
                r for r in self.rules if _open_headed(r) or r.pattern.segments[0] == head
            )

    def may_subscribe(self, identity: Identity, topic: str) -> bool:
        """Whether this identity may read this concrete topic."""
        if identity.admin:
            return True
        found = self._decisive(topic)
        return found is not None and requirements.met(found[0].require, identity, found[1])

    def may_publish(self, identity: Identity, topic: str) -> bool:
        """Whether this identity may publish to this topic."""
        if identity.admin:
            return True
        found = self._decisive(topic)
        if found is None:
            return identity.service
        rule, bindings = found
        if rule.publish is None:
            return identity.service
        if isinstance(rule.publish, bool):
            return rule.publish and (
                identity.service or requirements.met(rule.require, identity, bindings)
            )
        return requirements.met(rule.publish, identity, bindings)

    def may_subscribe_pattern(self, identity: Identity, pattern: str) -> bool:
        """Whether to accept a subscription to a topic or pattern.

        Messages of a pattern are filtered by topic. False only if no rule can allow this identity
        to read any topic of the pattern.
        """
        if not is_wildcard(pattern):
            return self.may_subscribe(identity, pattern)
        return identity.admin or any(
            rule_patterns.may_overlap(rule.pattern, pattern, way)
            for rule in self._candidates(pattern)
            for way in requirements.alternatives(rule.require, identity)
        )

    def unfiltered(self, identity: Identity, pattern: str) -> bool:
        """Whether this identity may read every topic of the pattern, without filtering."""
        if identity.admin:
            return True
        for rule in self._candidates(pattern):
            if not rule_patterns.may_overlap(rule.pattern, pattern, {}):
                continue
            bindings = rule_patterns.covers(rule.pattern, pattern)
            return bindings is not None and requirements.met(rule.require, identity, bindings)
        return False

    def hidden(self) -> Iterator[tuple[Rule, Rule]]:
        """Rules that never apply, each with an earlier rule of its file that matches its topics."""
        left = MAX_COMPARED
        for rule in self.rules:
            topics = rule_patterns.topics_of(rule.pattern)
            for earlier in self._candidates(topics):
                left -= len(rule.pattern.segments) * len(earlier.pattern.segments)
                if earlier is rule or left < 0:
                    break
                covered = rule_patterns.covers(earlier.pattern, topics) is not None
                if covered and earlier.source == rule.source:
                    yield rule, earlier
                    break

    def may_administer(self, identity: Identity) -> bool:
        """Whether this identity may list topics and inject faults. H-075."""
        return identity.admin

    def explain(self, identity: Identity, topic: str) -> Access:
        """What this identity may do with a topic or pattern, and which rule decides."""
        if identity.admin:
            return Access(True, True, None, "Administrators may do everything.")
        if is_wildcard(topic):
            return self._explain_pattern(identity, topic)
        found = self._decisive(topic)
        publish = self.may_publish(identity, topic)
        if found is None:
            reason = "No rule matches this topic, so it is denied"
            reason += "; services may still publish." if publish else "."
            return Access(False, publish, None, reason)
        rule, bindings = found
        subscribe = requirements.met(rule.require, identity, bindings)
        needed = requirements.describe(rule.require, bindings)
        verdict = "is met" if subscribe else "is not met"
        reason = f"To subscribe, {rule.title} requires {needed}, which {verdict}. "
        return Access(subscribe, publish, rule.title, reason + _publish_reason(rule, bindings))

    def _explain_pattern(self, identity: Identity, pattern: str) -> Access:
        allowed = self.may_subscribe_pattern(identity, pattern)
        if not allowed:
            reason = "No rule allows you to read a topic that matches this pattern."
        elif self.unfiltered(identity, pattern):
            reason = "You may read every topic that matches this pattern."
        else:
            reason = (
                "The pattern is allowed; you receive only messages of topics that you may read."
            )
        return Access(allowed, False, None, reason + " Publish to topics, not to patterns.")

    def _decisive(self, topic: str) -> tuple[Rule, dict[str, str]] | None:
        try:
            return self._known[topic]
        except KeyError:
            pass
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        found = self._known[topic] = self._find(topic)
        return found

    def _find(self, topic: str) -> tuple[Rule, dict[str, str]] | None:
        head = topic.partition(".")[0]
        for rule in self._by_head.get(head, self._anywhere):
            bindings = rule_patterns.bind(rule.pattern, topic)
            if bindings is not None:
                return rule, bindings
        return None

    def _candidates(self, pattern: str) -> Sequence[Rule]:
        head = pattern.partition(".")[0]
        return self.rules if "*" in head else self._by_head.get(head, self._anywhere)


def load_rules(files: Sequence[Path]) -> list[Rule]:
    """The rules of several files, one after the other.

    Raises:
        RulesError: A file cannot be read, or a rule of it is wrong.
    """
    rules = [rule for file in files for rule in _load_file(file)]
    if len(rules) > MAX_RULES:
        raise RulesError(f"there are {len(rules)} rules; at most {MAX_RULES} are allowed")
    return rules


def _load_file(file: Path) -> list[Rule]:
    try:
        text = documents.read(file)
        loaded = documents.mapping(documents.parse(text))
    except documents.DocumentError as error:
        raise RulesError(f"{file}: {error}") from None
    entries = _entries(file, documents.compose(text))
    values = documents.sequence((loaded or {}).get("rules")) or []
    rules: list[Rule] = []
    for number, (node, value) in enumerate(zip(entries, values, strict=True), 1):
        try:
            rules.append(_rule(number, file.name, value))
        except ValueError as error:
            line = node.start_mark.line + 1
            raise RulesError(f"{file}, line {line}, rule {number}: {error}") from None
    return rules


def _entries(file: Path, root: Node | None) -> list[Node]:
    if not isinstance(root, MappingNode):
        raise RulesError(f"{file}: must be a mapping with the one key `rules`")
    found: list[Node] | None = None
    for key, value in root.value:
        name = key.value if isinstance(key, ScalarNode) else "?"
        if name != "rules" or not isinstance(value, SequenceNode):
            line = key.start_mark.line + 1
            raise RulesError(f"{file}, line {line}: `{name}` is not a list called `rules`")
        found = list(value.value)
    if found is None:
        raise RulesError(f"{file}: has no `rules`")
    return found


def _rule(number: int, source: str, value: object) -> Rule:
    fields = documents.mapping(value)
    if fields is None:
        raise ValueError(
            "a rule must be a mapping with `pattern`, `require` and optionally `publish`"
        )
    for key in fields:
        if key not in {"pattern", "require", "publish"}:
            raise ValueError(f"unknown key `{key}`; use `pattern`, `require`, `publish`")
    text = fields.get("pattern")
    if not isinstance(text, str):
        raise ValueError("`pattern` is missing or not text")  # noqa: TRY004
    pattern = rule_patterns.parse(text)
    if "require" not in fields:
        raise ValueError(
            "`require` is missing; use `authenticated: true` to allow every authenticated client"
        )
    require = requirements.parse(fields["require"], pattern.placeholders)
    return Rule(number, source, pattern, require, _publish(fields.get("publish"), pattern))


def _publish(value: object, pattern: RulePattern) -> bool | Requirement | None:
    if value is None or isinstance(value, bool):
        return value
    fields = documents.mapping(value) or {}
    if set(fields) == {"require"}:
        return requirements.parse(fields["require"], pattern.placeholders)
    raise ValueError("`publish` must be true, false or `{require: …}`")


def _publish_reason(rule: Rule, bindings: dict[str, str]) -> str:
    match rule.publish:
        case None:
            return "It does not set `publish`, so only services may publish."
        case True:
            return "Services, and clients that may subscribe, may publish."
        case False:
            return "No client may publish."
        case requirement:
            return f"To publish, it requires {requirements.describe(requirement, bindings)}."


def _open_headed(rule: Rule) -> bool:
    head = rule.pattern.segments[0]
    return "*" in head or head.startswith("<")
