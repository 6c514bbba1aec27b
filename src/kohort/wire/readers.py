"""
Bytes to messages: one reader per message and version, compiled at its first use.

kio's native reader does the work, over classes that are built here from the schema: also nested classes, durations and dates
as plain integers, and a field that a version lacks as a class attribute with its default. All versions of a message so have
the same attributes. Before kio reads, a guard checks the counts that kio trusts (`generated/guards.py`). The first messages of
each version are left to the gradual reader: the import of kio takes 60 million instructions, and a start has a budget.

kio fails at an unknown tagged field and at a boolean that is neither 0 nor 1. Then the gradual reader (`generated/gradual.py`)
reads the message again, by the rules of Kafka. Bytes after the message are accepted, as in Kafka.
"""

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any, TypeAlias
from uuid import UUID

from kohort.model.errors import WireError
from kohort.model.limits import SHORT_ELEMENTS_MAX, STRING_BYTES_MAX
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.generated.gradual import GradualReader, compile_gradual_reader, drain
from kohort.wire.generated.guards import Guard, LongMessage, compile_guard
from kohort.wire.message_classes import default_value, message_classes
from kohort.wire.schema import Field, Message, message

Reader: TypeAlias = Callable[[bytes, int], Any]
"""Reads the message that begins at an offset. Raises WireError."""

_SLOW_BYTES_MAX = 8_192
"""A larger request that kio refuses is read in steps: each byte may be an unknown tagged field."""
FIRST_READS = 16
"""Messages of a version, none of them large, that are read without kio."""

_ELEMENT_TYPES: dict[str, Any] = {
    "string": str,
    "bytes": bytes,
    "records": bytes,
    "bool": bool,
    "float64": float,
    "uuid": UUID | None,
}


@cache
def request_reader(api_key: int, version: int) -> Reader:
    """
    The reader of the body of a request.

    It raises LongMessage for a request that should be read in steps, because it has more than `SHORT_ELEMENTS_MAX` elements, or
    is large and has unknown tagged fields.

    Raises:
        WireError: there is no such request, or no such version of it.
    """
    read = _reader(_api_message(api_key, version, "Request"), version, SHORT_ELEMENTS_MAX)
    if api_key == ApiKey.PRODUCE:
        from kohort.wire.produce_codec import ProduceReader, has_usual_messages

        if has_usual_messages(version):
            return ProduceReader(version, _decoded_classes("ProduceRequest", version), read).read
    return read


@cache
def gradual_request_reader(api_key: int, version: int) -> GradualReader:
    """The reader of the body of a request in steps. As `request_reader`."""
    return _gradual_reader(_api_message(api_key, version, "Request").name, version)


@cache
def response_reader(api_key: int, version: int) -> Reader:
    """The reader of the body of a response, after its header. As `request_reader`."""
    return _reader(_api_message(api_key, version, "Response"), version)


def _api_message(api_key: int, version: int, kind: str) -> Message:
    api = API_KEYS.get(api_key)
    if api is None or not api.oldest <= version <= api.newest:
        raise WireError(f"there is no version {version} of the API with key {api_key}")
    return message(f"{api.api_name}{kind}")


def _reader(schema: Message, version: int, elements_max: int | None = None) -> Reader:
    """Guard, native reader and slow path in one function, because a call between them costs a tenth of a heartbeat."""
    native: Callable[[bytes, int], tuple[Any, int]]
    first_reads = 0
    guard = compile_guard(schema, version, elements_max)
    whole_guard: Guard | None = None
    """Compiled with the first frame that has room for a string that is too long."""

    def at_first(frame: bytes, offset: int) -> tuple[Any, int]:
        """Leave the first messages to the other reader, and put kio's reader into the place of this function then."""
        nonlocal first_reads, native
        first_reads += 1
        if first_reads <= FIRST_READS and len(frame) <= _SLOW_BYTES_MAX:
            raise NotImplementedError
        native = _native_reader(schema.name, version)
        return native(frame, offset)

    native = at_first

    def read(frame: bytes, offset: int) -> Any:
        if len(frame) > STRING_BYTES_MAX:
            return read_large(frame, offset)
        try:
            return native(frame, offset)[0]
        except Exception:  # noqa: BLE001 -- whatever kio raises: the other reader decides
            return slow(frame, offset)

    def read_guarded(frame: bytes, offset: int) -> Any:
        if len(frame) > STRING_BYTES_MAX:
            return read_large(frame, offset)
        try:
            guard(frame, offset)  # type: ignore[misc]
            return native(frame, offset)[0]
        except (WireError, LongMessage):
            raise
        except Exception:  # noqa: BLE001 -- whatever kio raises: the other reader decides
            return slow(frame, offset)

    def read_large(frame: bytes, offset: int) -> Any:
        nonlocal whole_guard
        try:
            if whole_guard is None:
                whole_guard = compile_guard(schema, version, elements_max, is_whole=True)
            whole_guard(frame, offset)  # type: ignore[misc]
            return native(frame, offset)[0]
        except (WireError, LongMessage):
            raise
        except Exception:  # noqa: BLE001 -- whatever kio raises: the other reader decides
            return slow(frame, offset)

    def slow(frame: bytes, offset: int) -> Any:
        if elements_max is not None and len(frame) - offset > _SLOW_BYTES_MAX:
            raise LongMessage
        return drain(_gradual_reader(schema.name, version)(frame, offset, len(frame)))

    return read if guard is None else read_guarded


def _native_reader(message_name: str, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    """Return kio's reader; where kio is missing, as on executors of a Spark cluster, one that leaves it to the other reader."""
    try:
        from kohort.wire.native import kio_entity_reader
    except ImportError:
        return _no_native
    built = _decoded_classes(message_name, version)
    _describe_to_kio(built, message(message_name), version)
    return kio_entity_reader()(built[message_name])


def _no_native(_frame: bytes, _offset: int) -> tuple[Any, int]:
    raise NotImplementedError


@cache
def _gradual_reader(message_name: str, version: int) -> GradualReader:
    return compile_gradual_reader(message(message_name), version, _decoded_classes(message_name, version))


_MISSING = object()


def _is_same(value: Any, other: Any) -> bool:
    """Compare two values; an array is a tuple here and may be a list in the other message."""
    return bool(value == (tuple(other) if isinstance(other, list) else other))


class Decoded:
    """A decoded message, or a struct in one. Equal to any object with equal values, such as one of its message class."""

    __slots__ = ()
    __flexible__ = False
    field_names: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return all(_is_same(getattr(self, name), getattr(other, name, _MISSING)) for name in self.field_names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.field_names)
        return f"{type(self).__name__}({values})"


@cache
def _decoded_classes(message_name: str, version: int) -> dict[str, type]:
    """The classes of one version of a message and of the structs in it, by name."""
    schema = message(message_name)
    built: dict[str, type] = {}
    absent = message_classes(schema.name)
    for struct, all_fields in schema.structs.items():
        present = schema.fields(struct, version)
        namespace: dict[str, Any] = {
            "__slots__": tuple(field.name for field in present),
            "__flexible__": schema.is_flexible(version),
            "field_names": tuple(field.name for field in all_fields),
        }
        for field in all_fields:
            if not field.is_in(version):
                namespace[field.name] = default_value(field, absent)
        built[struct] = type(struct, (Decoded,), namespace)
    return built


def _describe_to_kio(built: dict[str, type], schema: Message, version: int) -> None:
    """Make dataclasses of the classes of one version: kio looks at their fields. Dataclasses take long to make."""
    from dataclasses import make_dataclass

    absent = message_classes(schema.name)
    for struct in schema.structs:
        fields = [
            (field.name, _type_of(field, version, built), _kio_field(field, absent))
            for field in schema.fields(struct, version)
        ]
        # With a docstring none is made, which would take most of the time.
        described = make_dataclass(struct, fields, namespace={"__doc__": struct}, init=False, repr=False, eq=False)
        built[struct].__dataclass_fields__ = described.__dataclass_fields__  # type: ignore[attr-defined]


def _type_of(field: Field, version: int, built: dict[str, type]) -> Any:
    """The annotation, from which kio derives arrays, nested classes and nullable fields."""
    element: Any = built.get(field.type) or _ELEMENT_TYPES.get(field.type, int)
    annotation: Any = tuple[element, ...] if field.array else element
    if field.is_nullable(version) and not isinstance(annotation, UnionType):
        annotation = annotation | None
    return annotation


def _kio_field(field: Field, absent: dict[str, Any]) -> Any:
    """The dataclass field that kio needs: its wire type, and tag and default of a tagged field."""
    from dataclasses import field as of_dataclass

    metadata: dict[str, Any] = {}
    if field.type not in absent:
        metadata["kafka_type"] = field.type
    if field.tag is None:
        return of_dataclass(metadata=metadata)
    metadata["tag"] = field.tag
    return of_dataclass(metadata=metadata, default=default_value(field, absent))
