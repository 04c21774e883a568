"""Models of payloads: convert JSON to objects and back (`ps.topic("orders", model=Order)`).

Loaded only if a program passes a model; msgspec only if the model is a struct.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from pydantic import (
    BaseModel,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from hanzoai.pubsub.errors import InvalidOption, SchemaError
from hanzoai.pubsub.generated.wire import Publication
from hanzoai.pubsub.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hanzoai.pubsub.values import Message, OnInvalid, Outgoing

T = TypeVar("T")

_POLICIES: Final = ("raise", "skip", "raw")
_PRESENCE: Final = "presence.update"
"""Messages of this type change the sender's presence; their data is not a payload of the topic."""

_SHOWN: Final = 3
"""Maximum fields in an error."""

_AT: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_MEMBER: Final = re.compile(r"(?:missing required|unknown) field `(.*)`$", re.DOTALL)
_VALUE: Final = re.compile(r"^(Invalid (?:enum )?value) .*$", re.DOTALL)


class _Mismatch(Exception):
    """A payload does not match: the fields and reasons, without values."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.problems = problems


class _Form(Protocol):
    """Converts JSON values to objects of one kind of model, and back."""

    def load(self, data: Any) -> Any:
        """Create an object. Raises _Mismatch."""
        ...

    def dump(self, value: Any) -> Any:
        """Create a JSON value that `load` accepts. Raises _Mismatch."""
        ...


class PayloadModel(Generic[T]):
    """The model of the payloads of one topic, and the policy for messages that do not match.

    Args:
        model: A pydantic model, dataclass, TypedDict, msgspec struct or another type that pydantic
            validates; or a ``TypeAdapter``.
        on_invalid: ``raise``, ``skip`` or ``raw``; see ``PubSubClient.topic``.
        report: Called with the error of a skipped message, and its topic.

    Raises:
        InvalidOption: The policy is unknown, or the model has no schema.
    """

    def __init__(
        self,
        model: type[T] | TypeAdapter[T],
        on_invalid: OnInvalid,
        report: Callable[[SchemaError, str], None],
    ) -> None:
        if on_invalid not in _POLICIES:
            raise InvalidOption(
                "`on_invalid` has an unknown value.",
                remedy='Pass "raise", "skip" or "raw".',
                field="on_invalid",
            )
        self._form = _form_of(model)
        self._on_invalid = on_invalid
        self._report = report

    def read(self, message: Message) -> Message[T] | None:
        """The message with an object of the model as its ``data``; None for one to skip.

        Raises:
            SchemaError: The payload does not match, and the policy is ``raise``.
        """
        try:
            data: T = self._form.load(message.data)
        except _Mismatch as mismatch:
            if self._on_invalid == "raw":
                return message
            error = _schema_error(
                mismatch, f"Message {message.id} on `{message.topic}`", message.topic, message.id
            )
            if self._on_invalid == "raise":
                raise error from error.__cause__
            self._report(error, message.topic)
            return None
        return message.model_copy(update={"data": data})

    def handler(self, function: Any) -> Any:
        """The handler of messages, called with parsed messages."""
        if not callable(function):
            return function  # `subscribe` rejects it

        @functools.wraps(function)
        def read_first(message: Message) -> Any:
            read = self.read(message)
            return None if read is None else function(read)

        return read_first

    def outgoing(self, topic: str, message: object) -> Outgoing:
        """The message to publish, with plain JSON as its ``data``.

        Args:
            topic: Its topic.
            message: A message whose ``data`` matches the model, or an object of the model.

        Raises:
            SchemaError: The payload does not match; nothing was sent.
        """
        if isinstance(message, Publication):
            if message.type == _PRESENCE:
                return message
            return message.model_copy(update={"data": self._checked(topic, message.data)})
        if isinstance(message, Mapping):
            fields = cast("Mapping[str, Any]", message)
            if "data" not in fields or fields.get("type") == _PRESENCE:
                return fields
            return {**fields, "data": self._checked(topic, fields["data"])}
        return {"data": self._checked(topic, message)}

    def _checked(self, topic: str, value: object) -> Any:
        try:
            return self._form.dump(value)
        except _Mismatch as mismatch:
            error = _schema_error(mismatch, f"A publish to `{topic}`", topic, None)
            raise error from error.__cause__


class _PydanticForm:
    """Models of pydantic, dataclasses, TypedDicts and other types that pydantic validates."""

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        self._adapter = adapter

    def load(self, data: Any) -> Any:
        """See `_Form`."""
        try:
            return self._adapter.validate_python(data)
        except ValidationError:
            # A strict model accepts a date from JSON text, but not from a Python str.
            return self._load_json(to_json(data))
        except Exception as error:
            raise _raised(error) from error

    def dump(self, value: Any) -> Any:
        """See `_Form`. This validates objects that are not validated yet, such as dataclasses."""
        plain = self._plain(value)
        try:
            text = to_json(plain)
        except PydanticSerializationError:
            return plain  # the check of payloads names the field
        read = self._load_json(text)
        return plain if isinstance(value, BaseModel) else self._plain(read)

    def _load_json(self, text: bytes) -> Any:
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise _Mismatch(
                [
                    (_path(problem["loc"]), _problem(problem))
                    for problem in error.errors(include_input=False, include_url=False)
                ]
            ) from None
        except Exception as error:
            raise _raised(error) from error

    def _plain(self, value: Any) -> Any:
        try:
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except ValueError as error:
            raise _Mismatch([("data", _unwritable(value, error))]) from error.__cause__


class _StructForm:
    """Structs of msgspec."""

    def __init__(self, model: type[Any]) -> None:
        import msgspec

        self._model = model
        self._convert = msgspec.convert
        self._to_builtins = msgspec.to_builtins
        self._invalid = msgspec.ValidationError

    def load(self, data: Any) -> Any:
        """See `_Form`."""
        try:
            return self._convert(data, self._model)
        except self._invalid as error:
            raise _Mismatch([_msgspec_problem(str(error))]) from None
        except Exception as error:
            raise _raised(error) from error

    def dump(self, value: Any) -> Any:
        """See `_Form`."""
        try:
            plain = self._to_builtins(value, str_keys=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise _Mismatch([("data", _unwritable(value, error))]) from None
        self.load(plain)
        return plain


def is_model(value: object) -> bool:
    """Whether a value is an object of a pydantic model, a dataclass or a msgspec struct.

    Types of the wire are not, so that a received message is rejected as a payload.
    """
    if isinstance(value, type | Model):
        return False
    return (
        isinstance(value, BaseModel)
        or dataclasses.is_dataclass(value)
        or hasattr(value, "__struct_fields__")
    )


def plain(value: object) -> Any:
    """The JSON value of an object of a model; other values unchanged.

    Values inside that are not JSON stay unchanged, so that the check of payloads names them.
    """
    if not is_model(value):
        return value
    try:
        return to_jsonable_python(value, by_alias=True, fallback=_fallback)
    except (ValueError, RecursionError) as error:
        raise _no_json(value, error) from error.__cause__


def _fallback(value: object) -> Any:
    if not hasattr(value, "__struct_fields__"):
        raise _no_json(value, None)
    import msgspec

    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise _no_json(value, error) from None


def _no_json(value: object, error: Exception | None) -> SchemaError:
    return SchemaError(
        f"The payload has {_unwritable(value, error)}.",
        remedy="Give the field a type that JSON supports, or a serializer.",
        field="data",
    )


def _form_of(model: Any) -> _Form:
    if isinstance(model, TypeAdapter):
        return _PydanticForm(cast("Any", model))
    if isinstance(model, type) and hasattr(model, "__struct_fields__"):
        return _StructForm(model)
    if isinstance(model, str):
        raise InvalidOption(
            "`model` is the name of a type.", remedy="Pass the type itself.", field="model"
        )
    if isinstance(model, Mapping):
        raise InvalidOption(
            "`model` is a mapping, such as a JSON Schema.",
            remedy="Pass a type: a pydantic model, a dataclass, a TypedDict or a msgspec struct.",
            field="model",
        )
    try:
        return _PydanticForm(TypeAdapter[Any](model))
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        name = getattr(model, "__qualname__", type(model).__name__)
        raise InvalidOption(
            f"pydantic cannot create a schema for `model`, which is `{name}`: "
            f"{str(error).partition(chr(10))[0]}",
            remedy="Pass a pydantic model, a dataclass, a TypedDict or a msgspec struct.",
            field="model",
        ) from None


def _schema_error(mismatch: _Mismatch, subject: str, topic: str, id: str | None) -> SchemaError:
    problems = mismatch.problems
    listed = "; ".join(f"`{path}`: {problem}" for path, problem in problems[:_SHOWN])
    more = len(problems) - _SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    error = SchemaError(
        f"{subject} does not match its model. {listed}{rest}.",
        topic=topic,
        field=problems[0][0],
        id=id,
    )
    error.__cause__ = mismatch.__cause__  # not all errors are raised
    return error


def _path(parts: Sequence[int | str]) -> str:
    return "data" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)


def _problem(problem: Any) -> str:
    if problem["type"] == "union_tag_invalid":  # whose text has the value
        return f"Expected one of the tags {problem['ctx']['expected_tags']}"
    return str(problem["msg"]).rstrip(".")


def _msgspec_problem(text: str) -> tuple[str, str]:
    found = _AT.match(text)
    problem, path = (found["problem"], found["path"] or "") if found else (text, "")
    member = _MEMBER.search(problem)
    if member is not None:
        path = f"{path}.{member[1]}"
    return f"data{path}", _VALUE.sub(r"\1", problem)


def _raised(error: Exception) -> _Mismatch:
    """A validator of the program raised something else than pydantic and msgspec expect."""
    return _Mismatch([("data", f"The model raised {type(error).__name__}")])


def _unwritable(value: object, error: Exception | None) -> str:
    """Why an object has no JSON, without its values."""
    found = "a value that JSON does not support"
    if isinstance(error, UnicodeDecodeError):
        found = "bytes that are not UTF-8 text, and no serializer for them, such as base64"
    elif isinstance(error, RecursionError) or (error and "Circular" in str(error)):
        found = "a value that contains itself"
    elif isinstance(error, PydanticSerializationError) and error.__cause__ is not None:
        found = f"a value whose serializer raised {type(error.__cause__).__name__}"
    return f"{found}, in an object of type {type(value).__name__}"
