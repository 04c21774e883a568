"""The inspector of a server with a contract, and the check of a contract with its schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.access.setup import StartError
from pubsub_server.contract import document

if TYPE_CHECKING:
    from pathlib import Path

    from pubsub_server.contract.document import Contract
    from pubsub_server.interfaces import Inspector


def inspector(file: Path) -> Inspector:
    """The inspector for a contract file.

    Raises:
        StartError: The file is wrong, or `jsonschema-rs` is not installed.
    """
    try:
        return _checked(document.load(file), "contract")
    except document.ContractError as error:
        raise StartError(f"contract: {error}") from None


def load(file: Path) -> Contract:
    """Read a contract, and check its schemas, for `hanzo-pubsub generate`.

    Raises:
        ContractError: It is not valid, or `jsonschema-rs` is not installed.
    """
    contract = document.load(file)
    _checked(contract, "generate")
    return contract


def _checked(contract: Contract, extra: str) -> Inspector:
    try:
        from pubsub_server.contract.enforcement import ContractInspector
    except ImportError:
        raise document.ContractError(
            "checking schemas needs jsonschema-rs. Install it: "
            f"pip install 'hanzoai-pubsub-server[{extra}]'"
        ) from None
    return ContractInspector(contract)
