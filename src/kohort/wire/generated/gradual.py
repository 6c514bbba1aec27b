"""
Readers that decode a long message in steps, so that the caller can do other work between two steps.

kio's native reader (`kohort.wire.readers`) decodes a message in one call, which takes a second for some megabytes of small
elements. A gradual reader is a generator: it yields after `STEP_ELEMENTS` elements and returns the message. It makes the same
objects as the native reader and takes a few times as long.

Memory is allocated for elements that were read, never for a count that a message claims, so no guard is needed. Unknown tagged
fields are skipped, as the protocol demands (KIP-482), and any byte except 0 is a true boolean, as in Kafka.

A reader is generated as Python source from the schema, once per message and version.
"""

from collections.abc import Callable, Generator
from struct import unpack_from
from typing import Any, Final, TypeAlias
from uuid import UUID

from kohort.model.errors import WireError
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire.generated.guards import refuse_count, refuse_length, refuse_null, refuse_tag
from kohort.wire.message_classes import default_value, message_classes
from kohort.wire.primitives import read_uvarint
from kohort.wire.schema import FIXED_FORMATS, FIXED_WIDTHS, Field, Message

STEP_ELEMENTS: Final = 512
"""Elements between two yields; they take half a millisecond."""
_STEP_NUMBERS: Final = 8 * STEP_ELEMENTS
"""Numbers of an array between two yields; they are unpacked by one call."""

GradualReader: TypeAlias = Callable[[bytes, int, int], Generator[None, None, Any]]
"""
`read(frame, offset, elements_max)` reads the message that begins at an offset, in steps. Raises WireError, also if the message
has more elements of arrays and tagged fields.
"""

_NO_UUID = bytes(16)


def drain(steps: Generator[None, None, Any]) -> Any:
    """Take all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def compile_gradual_reader(schema: Message, version: int, classes: dict[str, type]) -> GradualReader:
    """
    The gradual reader of one version of a message.

    Args:
        classes: the classes of the message and of the structs in it, by name.
    """
    namespace: dict[str, Any] = {
        "UUID": UUID,
        "NO_UUID": _NO_UUID,
        "WireError": WireError,
        "new": object.__new__,
        "read_uvarint": read_uvarint,
        "unpack_from": unpack_from,
        "refuse_count": refuse_count,
        "refuse_length": refuse_length,
        "refuse_null": refuse_null,
        "refuse_tag": refuse_tag,
        "refuse_elements": refuse_elements,
    }
    writer = _ReaderWriter(schema, version, classes, namespace)
    source = writer.source()
    exec(compile(source, f"<gradual reader of {schema.name} v{version}>", "exec"), namespace)  # noqa: S102
    read = namespace["read"]

    def read_gradually(frame: bytes, offset: int, elements_max: int) -> Generator[None, None, Any]:
        try:
            return (yield from read(frame, offset, elements_max))
        except WireError:
            raise
        except Exception as exc:
            raise WireError(f"{schema.name} version {version} cannot be read: {type(exc).__name__} {exc}") from exc

    return read_gradually


def refuse_elements(message_name: str, elements_max: int) -> None:
    raise WireError(f"{message_name} has more than {elements_max} elements")


class _ReaderWriter:
    """
    Writes the source of a reader: `frame` is read at the position `p` up to `end`; `u` counts elements, `s` those of a step.

    Attributes:
        depth: levels of indentation.
        names: how many variables have been named.
    """

    def __init__(self, schema: Message, version: int, classes: dict[str, type], namespace: dict[str, Any]) -> None:
        self.schema = schema
        self.version = version
        self.classes = classes
        self.namespace = namespace
        self.is_flexible = schema.is_flexible(version)
        self.absent = message_classes(schema.name)
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0

    def source(self) -> str:
        self.lines = ["def read(frame, p, elements_max):", "    end = len(frame); u = s = 0", "    if s: yield"]
        message = self.struct(self.schema.name)
        self.emit("if p > end: raise IndexError('the message ends early')")
        self.emit(f"return {message}")
        return "\n".join(self.lines) + "\n"

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def struct(self, struct: str) -> str:
        """Read a struct; returns the variable that has it."""
        found, cls = self.name(), f"C_{struct}"
        self.namespace[cls] = self.classes[struct]
        self.emit(f"{found} = new({cls})")
        fields = self.schema.fields(struct, self.version)
        for field in fields:
            if field.tag is None:
                self.field(field, f"{found}.{field.name}", f"{struct}.{field.name}")
            else:
                default = f"D_{struct}_{field.name}"
                self.namespace[default] = default_value(field, self.absent)
                self.emit(f"{found}.{field.name} = {default}")
        if self.is_flexible:
            self.tags([field for field in fields if field.tag is not None], found, struct)
        return found

    def field(self, field: Field, target: str, field_path: str) -> None:
        is_nullable = field.is_nullable(self.version)
        if field.array:
            self.array(field, target, field_path, is_nullable=is_nullable)
        elif field.type not in self.schema.structs:
            self.primitive(field, target, field_path, is_nullable=is_nullable)
        elif not is_nullable:
            self.emit(f"{target} = {self.struct(field.type)}")
        else:
            self.emit("p += 1")
            self.emit(f"if frame[p - 1] == 255: {target} = None")
            self.emit("else:")
            self.depth += 1
            self.emit(f"{target} = {self.struct(field.type)}")
            self.depth -= 1

    def primitive(self, field: Field, target: str, field_path: str, *, is_nullable: bool) -> None:
        if field.type == "uuid":
            self.emit("p += 16")
            self.emit("if p > end: raise IndexError('the message ends early')")
            self.emit("n = frame[p - 16:p]")
            self.emit(f"{target} = UUID(bytes=n) if n != NO_UUID else None")
        elif field.type == "bool":
            self.emit(f"{target} = frame[p] != 0; p += 1")
        elif field.type in FIXED_WIDTHS:
            self.emit(
                f"{target}, = unpack_from('>{FIXED_FORMATS[field.type]}', frame, p); p += {FIXED_WIDTHS[field.type]}"
            )
        else:
            self.length(field_path, is_string=field.type == "string")
            self.emit("if n < 0:")
            self.emit(f"    {target} = None" if is_nullable else f"    refuse_null({field_path!r})")
            self.emit("else:")
            self.emit("    p += n")
            self.emit("    if p > end: raise IndexError('the message ends early')")
            self.emit(f"    {target} = frame[p - n:p]{'.decode()' if field.type == 'string' else ''}")

    def length(self, field_path: str, *, is_string: bool = False) -> None:
        """Read a number of bytes or elements into `n`; -1 for null."""
        if self.is_flexible:
            self.emit("n = frame[p] - 1; p += 1")
            self.emit("if n > 126:")
            self.emit("    n, p = read_uvarint(frame, p - 1); n -= 1")
            if is_string:
                self.emit(f"    if n > {STRING_BYTES_MAX}: refuse_length({field_path!r}, n)")
            return
        form, width = ("h", 2) if is_string else ("i", 4)
        self.emit(f"n, = unpack_from('>{form}', frame, p); p += {width}")
        self.emit(f"if n < -1: refuse_length({field_path!r}, n)")

    def array(self, field: Field, target: str, field_path: str, *, is_nullable: bool) -> None:
        self.length(field_path)
        count, elements = self.name(), self.name()
        self.emit(f"{count} = n")
        self.emit(f"if {count} < 0:")
        self.emit(f"    {target} = None" if is_nullable else f"    refuse_null({field_path!r})")
        self.emit("else:")
        self.depth += 1
        least = self.schema.least_element_size(field, self.version)
        self.emit(f"if {count} * {least} > end - p: refuse_count({field_path!r}, {count}, end - p)")
        self.claim(count)
        self.emit(f"{elements} = []")
        if field.type in FIXED_FORMATS and field.type != "bool":
            self.numbers(field, count, elements)
        else:
            self.elements(field, field_path, count, elements)
        self.emit(f"{target} = tuple({elements})")
        self.depth -= 1

    def claim(self, count: str) -> None:
        self.emit(f"u += {count}")
        self.emit(f"if u > elements_max: refuse_elements({self.schema.name!r}, elements_max)")

    def numbers(self, field: Field, count: str, elements: str) -> None:
        self.emit(f"while {count} > 0:")
        self.emit(f"    n = {count} if {count} < {_STEP_NUMBERS} else {_STEP_NUMBERS}")
        self.emit(f"    {elements} += unpack_from(f'>{{n}}{FIXED_FORMATS[field.type]}', frame, p)")
        self.emit(f"    p += n * {FIXED_WIDTHS[field.type]}; {count} -= n; s += n")
        self.emit(f"    if s >= {_STEP_NUMBERS}: s = 0; yield")

    def elements(self, field: Field, field_path: str, count: str, elements: str) -> None:
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.step()
        if field.type in self.schema.structs:
            element = self.struct(field.type)
        else:
            element = self.name()
            self.primitive(field, element, field_path, is_nullable=False)
        self.emit(f"{elements}.append({element})")
        self.depth -= 1

    def step(self) -> None:
        self.emit("s += 1")
        self.emit(f"if s >= {STEP_ELEMENTS}: s = 0; yield")

    def tags(self, tagged: list[Field], found: str, struct: str) -> None:
        """Read the tagged fields at the end of a struct: known ones by their content, as Kafka does."""
        count, tag, size, start = self.name(), self.name(), self.name(), self.name()
        self.emit(f"{count} = frame[p]; p += 1")
        self.emit(f"if {count}:")
        self.depth += 1
        self.emit(f"if {count} > 127: {count}, p = read_uvarint(frame, p - 1)")
        self.claim(count)
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.step()
        self.emit(f"{tag}, p = read_uvarint(frame, p)")
        self.emit(f"{size}, p = read_uvarint(frame, p)")
        self.emit(f"{start} = p")
        for index, field in enumerate(tagged):
            field_path = f"{struct}.{field.name}"
            self.emit(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{found}.{field.name}", field_path)
            self.emit(f"if p - {start} != {size}: refuse_tag({field_path!r}, {size}, p - {start})")
            self.depth -= 1
        skip = f"p += {size}"
        self.emit(f"else: {skip}" if tagged else skip)
        self.emit("if p > end: raise IndexError('the message ends early')")
        self.depth -= 2
