"""The tables of errors and close codes are complete and agree with the schema."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from hanzoai.pubsub.generated import errors
from spec._generate.errors import compile_errors
from spec._generate.lifecycle import SpecError
from spec._generate.text import python_name, typescript_name
from tests.spec.files import DEFINITIONS, ROOT, read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE: dict[str, Any] = read_yaml("errors.yaml")


def test_the_schema_names_every_code_of_the_wire_and_no_other() -> None:
    named = DEFINITIONS["ErrorCode"]["anyOf"][0]["enum"]
    assert named == [record.code for record in errors.CODES.values() if record.scope == "wire"]


def test_the_page_of_errors_has_an_anchor_for_each_code() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for code in errors.CODES:
        assert page.count(f'<a id="{code}"></a>`{code}`') == 1


def test_no_text_names_a_file_that_only_a_checkout_has() -> None:
    for record in errors.CODES.values():
        assert not re.search(r"\w/\S+\.(md|json|yaml)", f"{record.meaning} {record.remedy}")


def test_every_code_from_1000_to_4999_has_one_answer() -> None:
    for code in range(1000, 5000):
        rows = [row for row in errors.CLOSE_CODES if row.first <= code <= row.last]
        assert len(rows) == 1
        assert errors.close_range(code) is rows[0]
        assert errors.close_action(code) == rows[0].action


@pytest.mark.parametrize("code", [None, -1, 0, 999, 5000, 65535])
def test_a_close_code_outside_the_table_counts_as_a_lost_connection(code: int | None) -> None:
    assert errors.close_range(code) is errors.close_range(1006)


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (1000, "retry"),
        (1001, "retry"),
        (1006, "retry"),
        (1008, "reauth"),
        (1012, "retry"),
        (4401, "reauth"),
        (4403, "stop"),
        (4408, "retry"),
        (4409, "stop"),
        (4413, "retry"),
        (4429, "retry"),
        (4500, "retry"),
    ],
)
def test_the_close_codes_of_the_service_lead_where_they_should(code: int, action: str) -> None:
    assert errors.close_action(code) == action


def test_an_error_and_its_close_code_lead_to_the_same_action() -> None:
    for record in errors.CODES.values():
        if record.close is not None and record.code != "auth_timeout":
            assert errors.close_action(record.close) == record.action, record.code


def test_every_error_has_a_meaning_and_a_remedy() -> None:
    for code, record in errors.CODES.items():
        assert record.code == code
        assert record.meaning.endswith(".")
        assert record.remedy.endswith(".")


def test_an_http_status_is_one_that_the_description_answers_with() -> None:
    described = {400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503}
    assert {r.status for r in errors.CODES.values() if r.status is not None} <= described


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    table = deepcopy(TABLE)
    change(table)
    with pytest.raises(SpecError) as caught:
        compile_errors(table)
    return str(caught.value)


def test_a_code_of_servers_that_only_one_sdk_knows_is_refused() -> None:
    words = broken(lambda table: table["codes"]["schema"].update({"sdk": "python"}))
    assert words == "errors.yaml: schema: every SDK knows the codes of servers"


def test_an_sdk_has_no_code_that_only_another_one_raises() -> None:
    table = compile_errors(TABLE)
    assert "wrong_loop" in table.of_sdk("python").client
    assert "wrong_loop" not in table.of_sdk("typescript").client


def test_a_hole_in_the_close_codes_is_refused() -> None:
    assert "want 1004" in broken(lambda table: table["close_codes"].pop(4))


def test_close_codes_that_end_early_are_refused() -> None:
    assert "4501 to 4999" in broken(lambda table: table["close_codes"].pop())


def test_an_overlap_of_close_codes_is_refused() -> None:
    assert "want 1003" in broken(lambda table: table["close_codes"][3].update({"from": 1002}))


def test_an_unknown_action_is_refused() -> None:
    assert "forbidden" in broken(lambda table: table["codes"]["forbidden"].update(action="panic"))


def test_a_code_that_no_server_could_send_is_refused() -> None:
    assert "no server" in broken(lambda table: table["codes"]["not_found"].pop("status"))


def test_what_may_be_tried_again_leads_to_another_try() -> None:
    assert "retryable" in broken(lambda table: table["codes"]["forbidden"].update(retryable=True))


def test_words_that_servers_send_name_nothing_of_one_language() -> None:
    def spell(table: dict[str, Any]) -> None:
        table["codes"]["forbidden"].update(remedy="Pass {get_token}.")

    assert "forbidden" in broken(spell)


def test_each_language_spells_names_as_its_own() -> None:
    spec = deepcopy(TABLE)
    spec["codes"]["closed"].update(remedy="Pass {get_token}, or {allow_insecure=True}.")
    table = compile_errors(spec)

    def remedy(spell: Callable[[str, str], str]) -> str:
        return next(row.remedy for row in table.spelled(spell).codes if row.code == "closed")

    assert remedy(python_name) == "Pass `get_token`, or `allow_insecure=True`."
    assert remedy(typescript_name) == "Pass `getToken`, or `allowInsecure: true`."


def test_a_code_of_the_sdk_has_no_status() -> None:
    assert "only wire codes" in broken(lambda table: table["codes"]["closed"].update(status=410))
