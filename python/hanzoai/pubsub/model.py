"""Base classes of every type on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRIVATE: Final = frozenset({"token", "data", "meta", "metadata"})


class Model(BaseModel):
    """A value of the wire: immutable, strict about types, open to fields of newer peers.

    Unknown fields are kept (``model_extra``) and written out again. Tokens, payloads and unknown
    fields are left out of ``repr``, and values out of validation errors, so that no log can show
    them. A ``TypeAdapter`` of a union needs ``hide_input_in_errors`` of its own for that.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        hide_input_in_errors=True,
    )

    def wire(self) -> dict[str, Any]:
        """What goes over the wire, as plain JSON values.

        Fields that are None are left out, except a payload that is null; None inside a payload
        stays. ``exclude_unset`` would drop the ``type`` of a frame.
        """
        return self.model_dump(exclude_none=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                yield name, _Hidden() if name in _PRIVATE else value


class Payload(Model):
    """A value with a required ``data``, which may be null and is written even then."""

    @model_serializer(mode="wrap")
    def _keep_data(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        if getattr(self, "data", None) is None:
            fields.setdefault("data", None)
        return fields


class _Hidden:
    def __repr__(self) -> str:
        return "..."
