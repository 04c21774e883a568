"""Access rules: patterns, requirements, order, publishing, explanations, mistakes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hanzoai.pubsub.topics import matches
from pubsub_server.access import rule_patterns
from pubsub_server.access.policy import DEFAULT_RULES, DEV_RULES, Policy, RulesError, load_rules
from pubsub_server.access.rule_patterns import bind, covers, may_overlap, parse
from pubsub_server.auth.identity import Identity

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Identity(
    "alice",
    orgs=frozenset({"acme"}),
    sessions_owned=frozenset({"s1"}),
    sessions_shared=frozenset({"s2"}),
    agents=frozenset({"bot1"}),
)
SERVICE = Identity("gateway", "service")
ADMIN = Identity("root", "admin")
DEFAULT = Policy(load_rules([DEFAULT_RULES]))


@pytest.fixture
def policy(tmp_path: Path, request: pytest.FixtureRequest) -> Policy:
    file = tmp_path / "rules.yaml"
    file.write_text(request.param, encoding="utf-8")
    return Policy(load_rules([file]))


def test_the_default_file_holds_the_rules_of_hip_56() -> None:
    rules = yaml.safe_load(DEFAULT_RULES.read_text(encoding="utf-8"))["rules"]
    assert rules == [
        {"pattern": "org.<org_id>.**", "require": {"org_membership": "<org_id>"}},
        {
            "pattern": "chat.session.<session_id>",
            "require": {
                "any": [{"session_owner": "<session_id>"}, {"session_shared": "<session_id>"}]
            },
        },
        {"pattern": "agent.<agent_id>.**", "require": {"agent_access": "<agent_id>"}},
        {"pattern": "user.<user_id>.**", "require": {"user_id": "<user_id>"}},
        {"pattern": "system.**", "require": {"authenticated": True}},
    ]


@pytest.mark.parametrize(
    ("topic", "allowed"),
    [
        ("org.acme.notifications", True),
        ("org.other.notifications", False),
        ("org.acme", False),
        ("chat.session.s1", True),
        ("chat.session.s2", True),
        ("chat.session.s3", False),
        ("chat.session.s1.tokens", False),
        ("agent.bot1.events", True),
        ("agent.bot1.tools.calls", True),
        ("agent.bot2.events", False),
        ("user.alice.alerts", True),
        ("user.bob.alerts", False),
        ("system.announcements", True),
        ("elsewhere", False),
    ],
)
def test_a_user_reads_what_the_rules_of_hip_56_allow(topic: str, allowed: bool) -> None:
    assert DEFAULT.may_subscribe(ALICE, topic) is allowed
    assert DEFAULT.may_publish(ALICE, topic) is False
    assert DEFAULT.may_publish(SERVICE, topic) is True
    assert DEFAULT.may_subscribe(ADMIN, topic)
    assert DEFAULT.may_publish(ADMIN, topic)


def test_the_access_rules_also_apply_to_the_subscriptions_of_services() -> None:
    assert not DEFAULT.may_subscribe(SERVICE, "agent.bot1.events")
    assert DEFAULT.may_subscribe(SERVICE, "system.announcements")


def test_only_admins_administer() -> None:
    assert DEFAULT.may_administer(ADMIN)
    assert not DEFAULT.may_administer(SERVICE)


@pytest.mark.parametrize(
    ("pattern", "stands", "unfiltered"),
    [
        ("chat.session.*", True, False),
        ("chat.*.s1", True, False),
        ("chat.session.s3", False, False),
        ("agent.**.events", True, False),
        ("agent.bot1.**", True, True),
        ("agent.bot2.**", False, False),
        ("user.*.alerts", True, False),
        ("user.bob.*", False, False),
        ("org.acme.**", True, True),
        ("system.**", True, True),
        ("system.*", True, True),
        ("**", True, False),
        ("*", False, False),
        ("*.acme.**", True, False),
        ("nowhere.**", False, False),
    ],
)
def test_a_pattern_is_granted_if_one_of_its_topics_could_be_readable(
    pattern: str, stands: bool, unfiltered: bool
) -> None:
    assert DEFAULT.may_subscribe_pattern(ALICE, pattern) is stands
    assert DEFAULT.unfiltered(ALICE, pattern) is unfiltered


def test_a_user_without_claims_is_denied_a_pattern_of_sessions() -> None:
    assert not DEFAULT.may_subscribe_pattern(Identity("bob"), "chat.session.*")
    assert DEFAULT.may_subscribe_pattern(ADMIN, "**")
    assert DEFAULT.unfiltered(ADMIN, "**")


@pytest.mark.parametrize(
    "policy",
    [
        """
rules:
  - {pattern: "a.secret", require: {admin: true}}
  - {pattern: "a.*", require: {authenticated: true}, publish: true}
  - {pattern: "a.open", require: {service: true}}
"""
    ],
    indirect=True,
)
def test_only_the_first_matching_rule_decides(policy: Policy) -> None:
    assert not policy.may_subscribe(ALICE, "a.secret")
    assert policy.may_subscribe(ALICE, "a.open")
    assert policy.may_publish(ALICE, "a.open")
    assert not policy.may_publish(ALICE, "a.secret")
    assert not policy.unfiltered(ALICE, "a.*")


@pytest.mark.parametrize(
    "policy",
    [
        """
rules:
  - {pattern: "silent.*", require: {authenticated: true}}
  - {pattern: "open.*", require: {authenticated: true}, publish: true}
  - {pattern: "shut.*", require: {authenticated: true}, publish: false}
  - {pattern: "own.<id>", require: {authenticated: true}, publish: {require: {user_id: "<id>"}}}
"""
    ],
    indirect=True,
)
def test_publishing_is_granted_apart_from_subscribing(policy: Policy) -> None:
    asked = ("silent.x", "open.x", "shut.x", "own.alice", "own.bob", "none.x")
    assert [policy.may_publish(ALICE, t) for t in asked] == [False, True, False, True, False, False]
    assert [policy.may_publish(SERVICE, t) for t in asked] == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert [policy.may_subscribe(ALICE, t) for t in asked] == [True] * 5 + [False]


@pytest.mark.parametrize(
    "policy",
    [
        """
rules:
  - pattern: "room.<org>.<id>"
    require:
      all:
        - org_membership: "<org>"
        - any: [{session_owner: "<id>"}, {user_id: "root"}]
  - pattern: "team.<org>.**"
    require: {org_membership: "<org>", service: false}
"""
    ],
    indirect=True,
)
def test_any_and_all_nest_and_several_keys_are_all(policy: Policy) -> None:
    assert policy.may_subscribe(ALICE, "room.acme.s1")
    assert not policy.may_subscribe(ALICE, "room.other.s1")
    assert not policy.may_subscribe(ALICE, "room.acme.s2")
    assert policy.may_subscribe_pattern(ALICE, "room.acme.*")
    assert not policy.may_subscribe_pattern(ALICE, "room.other.*")
    assert not policy.may_subscribe_pattern(ALICE, "room.*.s2")
    assert policy.may_subscribe(ALICE, "team.acme.x")
    assert not policy.may_subscribe(Identity("s", "service", orgs=ALICE.orgs), "team.acme.x")


def test_in_development_all_users_may_use_demo_and_dev_topics() -> None:
    policy = Policy(load_rules([DEFAULT_RULES, DEV_RULES]))
    for topic in ("demo.x", "dev.x.y"):
        assert policy.may_subscribe(Identity("anyone"), topic)
        assert policy.may_publish(Identity("anyone"), topic)
        assert not DEFAULT.may_subscribe(Identity("anyone"), topic)


@pytest.mark.parametrize(
    "policy",
    [
        """
rules:
  - {pattern: room.secret, require: {service: true}}
  - {pattern: room.*, require: {authenticated: true}}
"""
    ],
    indirect=True,
)
def test_the_first_rule_decides_about_a_subscription_to_a_topic(policy: Policy) -> None:
    assert not policy.may_subscribe_pattern(ALICE, "room.secret")
    assert policy.may_subscribe_pattern(ALICE, "room.open")
    assert policy.may_subscribe_pattern(ALICE, "room.*")


@pytest.mark.parametrize(
    ("identity", "topic", "expected"),
    [
        (ALICE, "agent.bot2.events", "`agent.<agent_id>.**`) requires agent_access of `bot2`"),
        (ALICE, "agent.bot1.events", "which is met"),
        (ALICE, "nowhere", "No rule matches"),
        (ADMIN, "nowhere", "Administrators"),
        (ALICE, "chat.session.*", "pattern is allowed"),
        (ALICE, "user.bob.*", "No rule allows you"),
        (ALICE, "org.acme.**", "every topic"),
    ],
)
def test_a_decision_is_explained(identity: Identity, topic: str, expected: str) -> None:
    access = DEFAULT.explain(identity, topic)
    assert expected in access.reason
    if "*" not in topic:
        assert access.subscribe is DEFAULT.may_subscribe(identity, topic)
        assert access.publish is DEFAULT.may_publish(identity, topic)


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("- a", "", "`rules`"),
        ("", "", "`rules`"),
        ("other: []", "line 1", "`other`"),
        ("rules: {}", "line 1", "list"),
        ("rules: [", "", "YAML"),
        ("rules:\n  - 7", "line 2, rule 1", "mapping"),
        ("rules:\n  - {require: {authenticated: true}}", "rule 1", "`pattern`"),
        ('rules:\n  - {pattern: "a"}', "rule 1", "`require` is missing"),
        (
            'rules:\n  - {pattern: "a", require: {org_membership: no}}',
            "rule 1",
            "`org_membership` is not text; put it in quotes",
        ),
        (
            'rules:\n  - {pattern: "a", require: {admin: true}}\n\n  - pattern: "a..b"\n',
            "line 4, rule 2",
            "segment 2",
        ),
        ('rules:\n  - {pattern: "a<b>", require: {admin: true}}', "rule 1", "segment 1"),
        ('rules:\n  - {pattern: "**.<a>.**", require: {admin: true}}', "rule 1", "ambiguous"),
        ('rules:\n  - {pattern: "a", require: {owner: "x"}}', "rule 1", "`owner`"),
        ('rules:\n  - {pattern: "a", require: {}}', "rule 1", "`require`"),
        ('rules:\n  - {pattern: "a", require: {admin: "yes"}}', "rule 1", "true or false"),
        ('rules:\n  - {pattern: "a", require: {any: []}}', "rule 1", "list"),
        ('rules:\n  - {pattern: "a.<x>", require: {user_id: "<y>"}}', "rule 1", "<x>"),
        ('rules:\n  - {pattern: "a.<x>", require: {user_id: "<x"}}', "rule 1", "<name>"),
        ('rules:\n  - {pattern: "a.<x>", require: {user_id: 7}}', "rule 1", "`user_id`"),
        ("rules:\n  - {pattern: a, require: {admin: true}, publsh: true}", "rule 1", "`publsh`"),
        ("rules:\n  - {pattern: a, require: {admin: true}, publish: 1}", "rule 1", "`publish`"),
    ],
)
def test_a_mistake_in_a_rules_file_names_line_and_rule(
    tmp_path: Path, text: str, where: str, expected: str
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RulesError) as caught:
        load_rules([file])
    assert str(file) in str(caught.value)
    assert where in str(caught.value)
    assert expected in str(caught.value)


def test_a_missing_rules_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"none\.yaml: cannot be read"):
        load_rules([tmp_path / "none.yaml"])


def test_a_requirement_with_too_many_ways_is_refused(tmp_path: Path) -> None:
    choice = "{any: [" + ", ".join(f"{{user_id: u{n}}}" for n in range(9)) + "]}"
    file = tmp_path / "rules.yaml"
    file.write_text(
        f"rules:\n  - {{pattern: a, require: {{all: [{choice}, {choice}]}}}}", encoding="utf-8"
    )
    with pytest.raises(RulesError, match="64 combinations"):
        load_rules([file])


@pytest.mark.parametrize(
    ("pattern", "topic", "bound"),
    [
        ("a.<x>.**", "a.1.b.c", {"x": "1"}),
        ("a.<x>.**", "a.1", None),
        ("**.<x>", "a.b.1", {"x": "1"}),
        ("<x>.**.<y>", "1.b.c.2", {"x": "1", "y": "2"}),
        ("<x>.b.<x>", "1.b.1", {"x": "1"}),
        ("<x>.b.<x>", "1.b.2", None),
        ("a.**.c.**", "a.b.c.d", {}),
        ("a.**.c.**", "a.b.c", None),
        ("a.**.c", "a.c", None),
        ("a.*", "a.b", {}),
    ],
)
def test_placeholders_are_bound_by_segment(
    pattern: str, topic: str, bound: dict[str, str] | None
) -> None:
    assert bind(parse(pattern), topic) == bound


@pytest.mark.parametrize(
    ("pattern", "subscription", "bound"),
    [
        ("<x>.b.<x>", "1.b.1", {"x": "1"}),
        ("<x>.b.<x>", "1.b.2", None),
        ("<x>.b.<x>", "*.b.1", None),
        ("<x>.<x>", "*.*", None),
        ("<x>.<y>", "*.1", {"y": "1"}),
        ("a.<x>.**", "a.1.**", {"x": "1"}),
        ("a.<x>.**", "a.**", None),
        ("**.<x>", "a.**.1", {"x": "1"}),
    ],
)
def test_a_rule_covers_a_subscription_with_one_meaning_of_each_placeholder(
    pattern: str, subscription: str, bound: dict[str, str] | None
) -> None:
    assert covers(parse(pattern), subscription) == bound


SEGMENT = st.sampled_from(["a", "b", "*", "**"])
PATTERN = st.lists(SEGMENT, min_size=1, max_size=4).map(".".join)
TOPIC = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=5).map(".".join)


@given(PATTERN, TOPIC)
def test_a_rule_without_placeholders_takes_what_a_subscription_takes(
    pattern: str, topic: str
) -> None:
    assert (bind(parse(pattern), topic) is not None) == matches(pattern, topic)


@given(PATTERN, PATTERN, TOPIC)
def test_patterns_that_share_a_topic_overlap_and_a_covering_one_takes_all(
    rule: str, subscription: str, topic: str
) -> None:
    both = matches(rule, topic) and matches(subscription, topic)
    if both:
        assert may_overlap(parse(rule), subscription, {})
    if covers(parse(rule), subscription) is not None and matches(subscription, topic):
        assert matches(rule, topic)


@given(
    st.lists(st.sampled_from(["a", "<x>", "<y>", "*"]), min_size=1, max_size=3),
    st.booleans(),
    PATTERN,
    st.dictionaries(st.sampled_from(["x", "y"]), st.frozensets(st.sampled_from(["a", "b"]))),
    TOPIC,
)
def test_a_pattern_overlaps_a_rule_if_a_topic_has_allowed_values(
    head: list[str],
    open_end: bool,
    subscription: str,
    allowed: dict[str, frozenset[str]],
    topic: str,
) -> None:
    rule = parse(".".join([*head, *["**"] * open_end]))
    bound = bind(rule, topic)
    if bound is None or not matches(subscription, topic):
        return
    if all(value in allowed.get(name, {value}) for name, value in bound.items()):
        assert may_overlap(rule, subscription, allowed)


@pytest.mark.parametrize(
    ("rule", "subscription", "allowed", "answer"),
    [
        ("org.<x>.**", "org.*.a", {"x": {"acme"}}, True),
        ("org.<x>.**", "org.*.a", {"x": frozenset[str]()}, False),
        ("org.<x>.**", "org.other.a", {"x": {"acme"}}, False),
        ("org.<x>.**", "org.acme", {"x": {"acme"}}, False),
        ("**.a.**.b", "a.**", {}, True),
        ("**.a", "**.b", {}, False),
        ("a.b", "a.b.c", {}, False),
    ],
)
def test_what_no_topic_can_match_does_not_overlap(
    rule: str, subscription: str, allowed: dict[str, frozenset[str]], answer: bool
) -> None:
    assert may_overlap(parse(rule), subscription, allowed) is answer


def test_long_patterns_are_compared_without_a_look_at_each_pair_of_segments() -> None:
    rule = parse(".".join(["**", "a"] * 40))
    subscription = ".".join(["a", "**"] * 40 + ["b"])
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        overlaps = may_overlap(rule, subscription, {})
    finally:
        sys.setprofile(None)
    assert not overlaps
    # There are 6,480 pairs.
    assert calls < 1_000


def test_a_pattern_of_many_stars_is_answered_at_once() -> None:
    many = ".".join(["**"] * 60)
    assert may_overlap(parse(many), many, {})
    assert covers(parse("**.a"), many) is None
    assert rule_patterns.MAX_PATTERN == 255


@pytest.mark.parametrize(
    ("patterns", "hidden"),
    [
        (["a.**", "a.b.**", "a.<x>"], [(2, 1), (3, 1)]),
        (["a.<x>.c", "a.b.c", "a.*.c", "a.<y>.<z>"], [(2, 1), (3, 1)]),
        (["**", "a.b"], [(2, 1)]),
        (["a.b", "a.<x>", "a.**", "*.b", "**"], []),
        (["a.**", "a", "b.**"], []),
        (["a.<x>.<x>", "a.<x>.<y>", "a.b.b"], [(3, 1)]),
    ],
)
def test_a_rule_that_an_earlier_one_hides_is_found(
    patterns: list[str], hidden: list[tuple[int, int]], tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    rules = [{"pattern": each, "require": {"authenticated": True}} for each in patterns]
    file.write_text(yaml.safe_dump({"rules": rules}), encoding="utf-8")
    found = Policy(load_rules([file])).hidden()
    assert [(rule.number, earlier.number) for rule, earlier in found] == hidden


def test_rules_of_the_server_hide_none_of_each_other_and_are_not_compared_with_others(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{pattern: '**', require: {authenticated: true}}]", encoding="utf-8")
    assert [*Policy(load_rules([file, DEFAULT_RULES, DEV_RULES])).hidden()] == []
