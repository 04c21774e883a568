"""Checks publications against the contract, before any subscriber receives them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson
from jsonschema_rs import Draft202012Validator, ValidationError

from pubsub_server.contract.document import ContractError
from pubsub_server.errors import ServiceError

if TYPE_CHECKING:
    from pubsub_server.contract.document import Contract
    from pubsub_server.shared.requests import Draft

_KNOWN: Final = 10_000
"""Maximum topics whose validator is cached."""


class ContractInspector:
    """See `interfaces.Inspector`: only payloads that match the contract are published.

    Args:
        contract: The contract.

    Raises:
        ContractError: A schema of the contract is not valid.
    """

    def __init__(self, contract: Contract) -> None:
        self._allow_undeclared = contract.allow_undeclared
        validators = {
            topic.pattern.text: _validator(topic.pattern.text, contract.full_schema(topic))
            for topic in contract.topics
        }

        @lru_cache(maxsize=_KNOWN)
        def validator_of(topic: str) -> Draft202012Validator | None:
            found = contract.find(topic)
            return None if found is None else validators[found.pattern.text]

        self._validator_of = validator_of

    def inspect(self, draft: Draft) -> None:
        """See `interfaces.Inspector`."""
        validator = self._validator_of(draft.topic)
        if validator is None:
            if self._allow_undeclared:
                return
            raise ServiceError(
                "schema",
                "the contract of this server does not declare the topic",
                topic=draft.topic,
                field="topic",
                remedy="Publish to a declared topic, or add this one to the contract.",
            )
        data = orjson.loads(draft.data)
        if validator.is_valid(data):
            return
        first = next(iter(validator.iter_errors(data)))
        field = _field(first)
        raise ServiceError(
            "schema",
            f"the payload does not match the contract. `{field}`: {first.message}",
            topic=draft.topic,
            field=field,
        )


def _validator(pattern: str, schema: dict[str, Any]) -> Draft202012Validator:
    try:
        return Draft202012Validator(
            schema, mask="the value", validate_formats=True, retriever=_no_other_file
        )
    except (ValidationError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ContractError(f"topic `{pattern}`: `schema` is not valid: {reason}") from None


def _no_other_file(uri: str) -> NoReturn:
    raise ValueError(f"a contract refers to its own `schemas` only, not to {uri}")


def _field(error: ValidationError) -> str:
    parts: list[str | int] = [*error.instance_path]
    missing = getattr(error.kind, "property", None)
    if isinstance(missing, str):
        parts.append(missing)
    return "data" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)
