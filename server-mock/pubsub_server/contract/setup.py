"""The inspector of a server that is given a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_server.access.setup import StartError
from pubsub_server.contract import document

if TYPE_CHECKING:
    from pathlib import Path

    from pubsub_server.interfaces import Inspector


def inspector(file: Path) -> Inspector:
    """What checks publications against a contract file.

    Raises:
        StartError: The file is wrong, or `jsonschema-rs` is not installed.
    """
    try:
        from pubsub_server.contract.enforcement import ContractInspector
    except ImportError:
        raise StartError(
            "contract: checking payloads needs jsonschema-rs. Install it: "
            "pip install 'hanzoai-pubsub-server[contract]'"
        ) from None
    try:
        return ContractInspector(document.load(file))
    except document.ContractError as error:
        raise StartError(f"contract: {error}") from None
