"""Topic contracts: reading, enforcement, and code generation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub import Published, PubSubClient, SchemaError
from pubsub_server.access.policy import Policy, load_rules
from pubsub_server.access.setup import StartError
from pubsub_server.auth.identity import Identity
from pubsub_server.commands import generate, serve
from pubsub_server.contract import document, setup
from pubsub_server.contract.document import ContractError
from pubsub_server.contract.typescript_types import typescript_types
from pubsub_server.testing import running_server
from tests.http_client import http_client

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "contract" / "contract.yaml"
ORDER = {"id": "1", "items": [{"sku": "a", "count": 2}]}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def contract(text: str) -> Path:
        file = tmp_path / "contract.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return contract


# ---------------------------------------------------------------- the file


def test_the_first_pattern_that_takes_a_topic_decides() -> None:
    contract = document.load(EXAMPLE)
    for topic, name in (
        ("demo.orders.eu", "Order"),
        ("demo.prices.ACME", "Price"),
        ("demo.orders.eu.1", None),
        ("other", None),
    ):
        found = contract.find(topic)
        assert (found and found.name) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "topics"),
        ("topics: {}", "topics"),
        ("topics: {a: 5}", "topic `a`"),
        ("topics: {a: {}}", "`schema`"),
        ("topics: {a: {schema: 5}}", "`schema`"),
        ("topics: {'a b': {schema: {}}}", "a b"),
        ("topics: {a: {schema: {}, color: red}}", "`color`"),
        ("topics: {a: {schema: {}, publishers: me}}", "topic `a`"),
        ("topics: {a: {schema: {}, name: x}}", "`name`"),
        ("topics: {a: {schema: {type: string}}, A: {schema: {type: number}}}", "set `name`"),
        ("{topics: {a: {schema: {}}}, schemas: {A: {}}}", "`A`"),
        ("{topics: {a: {schema: {}}}, undeclared: drop}", "`undeclared`"),
        ("{topics: {a: {schema: {type: text}}}}", "`schema` is not valid"),
        ("{topics: {a: {schema: {$ref: '#/schemas/B'}}}}", "`schema` is not valid"),
        ("{topics: {a: {schema: {$ref: 'http://localhost:1/b.json'}}}}", "own `schemas`"),
        ("topics: {a: {schema: {}}, a: {schema: {}}}", "twice"),
    ],
)
def test_a_wrong_contract_names_the_file_and_the_place(
    write: Callable[[str], Path], text: str, expected: str
) -> None:
    file = write(text)
    with pytest.raises(StartError) as caught:
        setup.inspector(file)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("contract: ")


def test_check_config_names_a_wrong_contract(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("topics: {a: {schema: {type: text}}}")
    assert serve(["--dev", "--contract", str(file), "--check-config"]) == 2
    assert "contract: topic `a`" in capsys.readouterr().err


# ---------------------------------------------------------------- enforced


async def test_a_payload_that_does_not_match_reaches_no_subscriber() -> None:
    async with (
        running_server(contract=EXAMPLE) as server,
        PubSubClient(server.ws, server.admin_token(), rest_url=server.http) as ps,
    ):
        async with ps.subscribe("demo.**") as sub:
            for via in ("socket", "rest"):
                with pytest.raises(SchemaError) as caught:
                    await ps.publish(
                        "demo.orders.eu", {"data": {"id": "1", "items": [{"sku": 5}]}}, via=via
                    )
                error = caught.value
                assert (error.code, error.topic) == ("schema", "demo.orders.eu")
                assert error.field == "data.items[0].count"
                assert "`data.items[0].count`" in str(error)
            results = await ps.publish_many(
                [("demo.orders.eu", {"data": "SECRET"}), ("demo.orders.eu", {"data": ORDER})]
            )
            assert isinstance(results[0], SchemaError)
            assert results[0].field == "data"
            assert "SECRET" not in str(results[0])
            assert isinstance(results[1], Published)
            await ps.publish("demo.free", {"data": "anything"})
            seen = [(await anext(sub)).data for _ in range(2)]
        assert seen == [ORDER, "anything"]
        async with http_client() as http:
            answer = await http.post(
                f"{server.http}/v1/topics/demo.prices.ACME/messages",
                headers={"Authorization": f"Bearer {server.admin_token()}"},
                json={"topic": "demo.prices.ACME", "type": "t", "data": {"amount": -1}},
            )
            metrics = (await http.get(f"{server.http}/metrics")).text
        assert answer.status_code == 422, answer.text
        problem = answer.json()
        assert (problem["code"], problem["topic"]) == ("schema", "demo.prices.ACME")
        counted = [line for line in metrics.splitlines() if 'code="schema"' in line]
        assert [float(line.split()[-1]) for line in counted] == [4.0]


async def test_a_contract_may_refuse_topics_that_it_does_not_declare(
    write: Callable[[str], Path],
) -> None:
    file = write("{topics: {demo.a: {schema: {type: integer}}}, undeclared: refuse}")
    async with (
        running_server(contract=file) as server,
        PubSubClient(server.ws, server.admin_token(), rest_url=server.http) as ps,
    ):
        await ps.publish("demo.a", {"data": 1})
        with pytest.raises(SchemaError) as caught:
            await ps.publish("demo.b", {"data": 1})
        assert caught.value.topic == "demo.b"


# ---------------------------------------------------------------- code


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Path]:
    files = {
        "python": tmp_path / "shop.py",
        "typescript": tmp_path / "shop.ts",
        "asyncapi": tmp_path / "shop.yaml",
        "access": tmp_path / "rules.yaml",
    }
    flags = [part for name, file in files.items() for part in (f"--{name}", str(file))]
    assert generate([str(EXAMPLE), *flags]) == 0
    assert generate([str(EXAMPLE), *flags, "--check"]) == 0
    return files


def test_generated_files_do_what_they_are_for(made: dict[str, Path], tmp_path: Path) -> None:
    program = (
        "import json, shop\n"
        f"order = shop.Order.model_validate({ORDER!r})\n"
        "print(json.dumps([order.model_dump(exclude_none=True), order.items[0].count]))\n"
        "try: shop.Price(amount=-1, currency='EUR')\n"
        "except ValueError: print('refused')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [json.dumps([ORDER, 2]), "refused"], done.stderr

    use = tmp_path / "use.ts"
    use.write_text(
        "import type { Order, Topics } from './shop.ts';\n"
        "export const order: Order = { id: '1', items: [{ sku: 'a', count: 1 }] };\n"
        "export const price: Topics['demo.prices.ACME'] = { amount: 1, currency: 'EUR' };\n"
        "// @ts-expect-error A price has no such currency.\n"
        "export const wrong: Topics['demo.prices.ACME'] = { amount: 1, currency: 'GBP' };\n"
    )
    tsc = ROOT / "node_modules" / ".bin" / "tsc"
    flags = ["--strict", "--noEmit", "--allowImportingTsExtensions", "--module", "nodenext"]
    types = subprocess.run(
        [tsc, *flags, use], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert types.returncode == 0, types.stdout

    checked = subprocess.run(
        ["node", ROOT / "scripts" / "check_asyncapi.mjs", made["asyncapi"]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr

    policy = Policy(load_rules([made["access"]]))
    alice, service = Identity("alice"), Identity("shop", "service")
    assert not policy.may_publish(alice, "demo.orders.eu")
    assert policy.may_publish(service, "demo.orders.eu")
    assert policy.may_publish(alice, "demo.prices.ACME")
    assert policy.may_subscribe(alice, "demo.orders.eu")


def test_check_names_the_outdated_file(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    made["access"].write_text("", encoding="utf-8")
    capsys.readouterr()
    assert generate([str(EXAMPLE), "--access", str(made["access"]), "--check"]) == 1
    assert str(made["access"]) in capsys.readouterr().err
    assert made["access"].read_text(encoding="utf-8") == ""


def test_the_error_for_a_missing_validator_names_the_extra_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pubsub_server.contract.enforcement", None)
    assert generate([str(EXAMPLE)]) == 2
    assert "'hanzoai-pubsub-server[generate]'" in capsys.readouterr().err
    with pytest.raises(StartError, match=r"'hanzoai-pubsub-server\[contract\]'"):
        setup.inspector(EXAMPLE)


def test_generate_names_what_is_wrong_with_a_contract(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate([str(write("topics: {a: {}}"))]) == 2
    assert "topic `a`: `schema` is missing" in capsys.readouterr().err
    assert generate([str(ROOT / "absent.yaml")]) == 2
    assert generate([str(write("topics: {a: {schema: {properties: 5}}}"))]) == 2
    assert "topic `a`: `schema` is not valid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "export type A = unknown;"),
        ({"type": ["string", "null"]}, "export type A = string | null;"),
        ({"enum": ["a", 1, None]}, 'export type A = "a" | 1 | null;'),
        ({"const": True}, "export type A = true;"),
        ({"type": "array", "items": {"enum": [1, 2]}}, "export type A = (1 | 2)[];"),
        (
            {"prefixItems": [{"type": "string"}], "items": False, "type": "array"},
            "export type A = [string];",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "export type A = Record<string, number>;",
        ),
        (
            {"oneOf": [{"type": "object", "properties": {"x-y": {}}}, {"type": "null"}]},
            'export type A = {\n  "x-y"?: unknown;\n} | null;',
        ),
        (
            {"allOf": [{"type": "string"}, {"anyOf": [{"const": "a"}, {"const": "b"}]}]},
            'export type A = string & ("a" | "b");',
        ),
    ],
)
def test_json_schema_becomes_typescript(
    write: Callable[[str], Path], schema: Any, text: str
) -> None:
    contract = document.load(write(json.dumps({"topics": {"a": {"schema": schema}}})))
    assert text in typescript_types(contract)


def test_a_reference_to_another_file_has_no_type(write: Callable[[str], Path]) -> None:
    contract = document.load(write("{topics: {a: {schema: {$ref: other.json}}}}"))
    with pytest.raises(ContractError, match="schemas"):
        typescript_types(contract)
