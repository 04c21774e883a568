"""Base classes of every type on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import VERSION, BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Data = TypeVar("Data", default=Any)
"""Type of the payloads of a topic: ``TopicHandle[Order]``; by default, any JSON value."""

Data_co = TypeVar("Data_co", default=Any, covariant=True)
"""Type of a received payload: a ``Message[Order]`` is also a ``Message[Order | Refund]``."""

M = TypeVar("M", bound=BaseModel)

_PRIVATE: Final = frozenset({"token", "data", "meta", "metadata"})
_DEFERS: Final = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)
"""Whether types are built at first use instead of at import, which saves a third of its time.

It requires pydantic 2.14, which supports a concurrent first use in several threads.
"""
_DATA_SHOWN: Final = 60
"""Maximum characters of a message's data in its `repr`."""


class Model(BaseModel):
    """A value of the wire: immutable, with strict types, and unknown fields allowed.

    Unknown fields are kept (``model_extra``) and written again. Tokens, payloads and unknown
    fields are left out of ``repr``, and values out of validation errors, so that no log can show
    them. A ``TypeAdapter`` of a union needs ``hide_input_in_errors`` of its own for that. Only the
    ``repr`` of a message itself shows the beginning of its data.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        hide_input_in_errors=True,
        defer_build=_DEFERS,
    )

    def wire(self) -> dict[str, Any]:
        """The value as plain JSON, for the wire.

        Fields that are None are left out, except a null payload; None inside a payload stays.
        ``exclude_unset`` would drop the ``type`` of a frame.
        """
        return self.model_dump(exclude_none=True)

    if not TYPE_CHECKING:  # a type checker would then accept any attribute

        def __getattr__(self, name: str) -> Any:
            return getattr(self, name) if _fill(self, name) else super().__getattr__(name)

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        is_message = type(self).__name__ == "Message"
        for name, value in _shown(self):
            is_data = is_message and name == "data"
            yield name, _Beginning(getattr(self, name)) if is_data else value

    def __str__(self) -> str:
        return repr(self)


class Payload(Model):
    """A value with a required ``data``, which is written even if it is null."""

    @model_serializer(mode="wrap")
    def _keep_data(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        if getattr(self, "data", None) is None:
            fields.setdefault("data", None)
        return fields


new_model: Final = object.__new__
"""Create a model whose `__dict__` the caller fills with valid values of all fields.

The model adds what else it has when that is first used. Then the required fields and those that are
not None are set.
"""

# Fill the slots of a pydantic model like `BaseModel.model_construct`.
_put_fields, _put_fields_set, _put_extra, _put_private = (
    BaseModel.__dict__[name].__set__
    for name in (
        "__dict__",
        "__pydantic_fields_set__",
        "__pydantic_extra__",
        "__pydantic_private__",
    )
)


def trusted(model: type[M], fields: dict[str, Any], fields_set: set[str]) -> M:
    """Create a model from valid values without validation, which takes ten times as long.

    Args:
        model: The model.
        fields: The values of all fields, by name, in order; the model keeps this dict.
        fields_set: Names of those that are not defaults; kept too. Models copy these sets, so many
            may share one.
    """
    made = new_model(model)
    _put_fields(made, fields)
    _put_fields_set(made, fields_set)
    _put_extra(made, {})
    _put_private(made, None)
    return made


def _fill(value: BaseModel, slot: str) -> bool:
    """Fill a slot that `new_model` has left empty; whether it is one."""
    if slot == "__pydantic_fields_set__":
        given = {
            name
            for name, field in type(value).model_fields.items()
            if field.is_required() or getattr(value, name) is not None
        }
        _put_fields_set(value, given)
    elif slot == "__pydantic_extra__":
        _put_extra(value, {})
    elif slot == "__pydantic_private__":
        _put_private(value, None)
    else:
        return False
    return True


class _Beginning:
    def __init__(self, data: object) -> None:
        self._data = data

    def __repr__(self) -> str:
        text = repr(self._data)
        return text if len(text) <= _DATA_SHOWN else f"{text[:_DATA_SHOWN]}…"


class _Closed:
    def __init__(self, value: Model) -> None:
        self._value = value

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in _shown(self._value))
        return f"{type(self._value).__name__}({shown})"


class _Hidden:
    def __repr__(self) -> str:
        return "..."


def _shown(value: Model) -> Iterator[tuple[str, object]]:
    """The ``repr`` of a value, without private and nested values."""
    for name in type(value).model_fields:
        field = getattr(value, name)
        if field is None and name != "data":
            continue
        if name in _PRIVATE:
            yield name, _Hidden()
        elif isinstance(field, Model):
            yield name, _Closed(field)
        elif isinstance(field, list):
            entries = cast("list[object]", field)
            yield name, [_Closed(one) if isinstance(one, Model) else one for one in entries]
        else:
            yield name, field
