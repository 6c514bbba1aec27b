"""
Bytes to values, in Python: decoders compiled from a schema for coordinator records and embedded protocols.

Requests and responses are read by kio's native reader (`kohort.wire.readers`). Coordinator records are decoded where kio is not
wanted, such as in Spark executors, and into classes of their own, so their decoders are generated as Python source.

The bytes may come from any source. Every claimed count is compared with the bytes that are left before anything is allocated.
As in Kafka, bytes after the last field are ignored, unknown tagged fields are skipped, and invalid UTF-8 is replaced by U+FFFD.

Source: the protocol guide of Apache Kafka, "Protocol Primitive Types"; KIP-482; Kafka ByteBufferAccessor, MessageDataGenerator.
"""

from collections.abc import Callable, Mapping
from struct import Struct, error, unpack_from
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

from kohort.model.errors import WireError
from kohort.model.limits import ARRAY_ELEMENTS_MAX
from kohort.wire.generated.source import SourceWriter
from kohort.wire.message_classes import default_value
from kohort.wire.schema import FIXED_FORMATS, FIXED_WIDTHS, Field, Message

Decoder: TypeAlias = Callable[..., Any]

DECODE_ERRORS = (WireError, IndexError, error)
"""Raised by a decoder when the bytes end early or state an impossible length."""


class DecoderWriter(SourceWriter):
    """
    Writes the source of a decoder.

    Attributes:
        defaults: the classes of structs that are the default of a field.
        run: fields of fixed width that are visited and not yet read: format character and variable.
    """

    UTF8_ERRORS: ClassVar = "replace"

    def __init__(self, classes: Mapping[str, type], *, by_keyword: bool = False) -> None:
        """
        Args:
            classes: of the structs that are built, by name.
            by_keyword: the classes take keyword arguments only.
        """
        super().__init__()
        self.classes = self.defaults = dict(classes)
        self.by_keyword = by_keyword
        self.run: list[tuple[str, str]] = []
        self.uuids: list[str] = []
        self.schema: Message
        self.version = 0
        self.is_flexible = False
        self.namespace |= {"unpack_from": unpack_from, "UUID": UUID, "NO_UUID": bytes(16)}

    def message(self, schema: Message, version: int, buffer: str, start: int | str) -> dict[str, str]:
        """Read a message from `start` in the argument `buffer`; the fields and the expressions of their values."""
        self.schema, self.version, self.is_flexible = schema, version, schema.is_flexible(version)
        self.emit(f"frame = {buffer}; p = {start}; end = len(frame)")
        values = self.fields(schema.name)
        self.flush()
        return values

    def compile(self, arguments: str, result: str) -> Decoder:
        """The decoder as a function of `arguments` that returns the expression `result`."""
        self.emit(f"return {result}")
        decoder: Decoder = self.compiled(arguments, f"decoder of {self.schema.name} v{self.version}")
        return decoder

    def build(self, struct: str, values: Mapping[str, str]) -> str:
        """The expression that makes an instance of a class."""
        made = self.classes[struct]
        self.namespace[struct] = made
        names: tuple[str, ...] = made.__struct_fields__  # type: ignore[attr-defined]
        parts = [f"{name}={values[name]}" if self.by_keyword else values[name] for name in names]
        return f"{struct}({', '.join(parts)})"

    # Writing code

    def flush(self) -> None:
        """Read the fields of fixed width that are adjacent with one call."""
        if not self.run:
            return
        form = "".join(character for character, _ in self.run)
        layout = Struct(f">{form}")
        constant = f"UNPACK_{form.replace('?', '_')}"
        self.namespace[constant] = layout.unpack_from
        names = "".join(f"{name}, " for _, name in self.run)
        self.emit(f"{names}= {constant}(frame, p); p += {layout.size}")
        for name in self.uuids:
            self.emit(f"{name} = UUID(bytes={name}) if {name} != NO_UUID else None")
        self.run, self.uuids = [], []

    def fields(self, struct: str) -> dict[str, str]:
        """Read the fields of a struct; the expressions of their values by name, absent fields included."""
        values: dict[str, str] = {}
        tagged: list[Field] = []
        for field in self.schema.structs[struct]:
            if not field.is_in(self.version):
                values[field.name] = self.default(field)
            elif field.tag is None:
                values[field.name] = self.field(field, f"{struct}.{field.name}")
            else:
                tagged.append(field)
        if self.is_flexible:
            self.flush()
            values |= {field.name: self.name() for field in tagged}
            for field in tagged:
                self.emit(f"{values[field.name]} = {self.default(field)}")
            self.tags(tagged, struct, values)
        return values

    def default(self, field: Field) -> str:
        """The value of a field that is absent."""
        value = default_value(field, self.defaults)
        if value is None or isinstance(value, int | str | bytes) or value == ():
            return repr(value)
        name = f"DEFAULT_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def field(self, field: Field, field_path: str) -> str:
        """Read a field; the expression of its value."""
        if field.array:
            return self.array(field, field_path)
        if field.type in self.schema.structs:
            return self.nested(field)
        if field.type in FIXED_WIDTHS:
            return self.fixed(field.type)
        return self.text(field, field_path, is_nullable=field.is_nullable(self.version))

    def fixed(self, type_: str) -> str:
        name = self.name()
        self.run.append(("16s" if type_ == "uuid" else FIXED_FORMATS[type_], name))
        if type_ == "uuid":
            self.uuids.append(name)
        return name

    def length(self, _field_path: str, *, is_string: bool = False) -> str:
        """Read a length: -1 is null, as a negative length is in Kafka."""
        size = self.name()
        if self.is_flexible:
            self.flush()
            self.emit(f"{size} = frame[p]; p += 1")
            self.emit(f"if {size} > 127: {size}, p = read_uvarint(frame, p - 1)")
            self.emit(f"{size} -= 1")
        else:
            self.run.append(("h" if is_string else "i", size))
            self.flush()
        return size

    def text(self, field: Field, field_path: str, *, is_nullable: bool) -> str:
        """A string or bytes."""
        size, name = self.length(field_path, is_string=field.type == "string"), self.name()
        null = f"{name} = None" if is_nullable else f"refuse_null({field_path!r})"
        self.emit(f"if {size} < 0: {null}")
        with self.block("else:"):
            self.emit(f"{name} = frame[p:p + {size}]; p += {size}")
            self.emit("if p > end: raise IndexError('the bytes end inside ' + " + repr(field_path) + ")")
            if field.type == "string":
                self.emit(f"{name} = str({name}, 'utf-8', {self.UTF8_ERRORS!r})")
        return name

    def nested(self, field: Field) -> str:
        if not field.is_nullable(self.version):
            return self.build(field.type, self.fields(field.type))
        name = self.name()
        self.flush()
        self.emit("p += 1")
        self.emit(f"if {self.is_null(field)}: {name} = None")
        with self.block("else:"):
            values = self.fields(field.type)
            self.flush()
            self.emit(f"{name} = {self.build(field.type, values)}")
        return name

    def is_null(self, field: Field) -> str:
        """Whether the byte before `p` says that no struct follows: negative for null, but 0 in a tagged field."""
        return "frame[p - 1] > 127" if field.tag is None else "frame[p - 1] != 1"

    def array(self, field: Field, field_path: str) -> str:
        count, name = self.length(field_path), self.name()
        null = f"{name} = None" if field.is_nullable(self.version) else f"refuse_null({field_path!r})"
        least = self.schema.least_element_size(field, self.version)
        self.emit(f"if {count} < 0: {null}")
        self.emit(f"elif {count} * {least} > end - p: refuse_count({field_path!r}, {count}, end - p)")
        self.emit(f"elif {count} > {ARRAY_ELEMENTS_MAX}: refuse_elements({field_path!r}, {count})")
        with self.block("else:"):
            self.claim(count)
            if field.type in FIXED_FORMATS:
                self.numbers(field.type, count, name)
            else:
                self.elements(field, field_path, count, name)
        return name

    def numbers(self, type_: str, count: str, name: str) -> None:
        layout = f"f'>{{{count}}}{FIXED_FORMATS[type_]}'"
        self.emit(f"{name} = unpack_from({layout}, frame, p); p += {count} * {FIXED_WIDTHS[type_]}")

    def elements(self, field: Field, field_path: str, count: str, name: str) -> None:
        self.emit(f"{name} = []")
        with self.block(f"for _ in range({count}):"):
            self.step()
            if field.type in self.schema.structs:
                values = self.fields(field.type)
                self.flush()
                element = self.build(field.type, values)
            elif field.type == "uuid":
                element = self.fixed("uuid")
                self.flush()
            else:
                element = self.text(field, field_path, is_nullable=False)
            self.emit(f"{name}.append({element})")
        self.emit(f"{name} = tuple({name})")

    def tagged(self, field: Field, field_path: str, values: Mapping[str, str]) -> None:
        value = self.field(field, field_path)
        self.flush()
        self.emit(f"{values[field.name]} = {value}")

    def unknown(self, tagged: list[Field], size: str) -> None:
        self.emit(f"{'else' if tagged else 'if True'}: p += {size}")
        self.emit("if p > end: raise IndexError('the bytes end inside tagged fields')")
