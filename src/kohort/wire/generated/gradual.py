"""
Readers that decode a long message in steps, so that the caller can do other work between two steps.

kio's native reader (`kohort.wire.readers`) decodes a message in one call, which takes a second for some megabytes of small
elements. A gradual reader is a generator: it yields after `STEP_ELEMENTS` elements and returns the message. It makes the same
objects as the native reader and takes a few times as long.

Memory is allocated for elements that were read, never for a count that a message claims, so no guard is needed. Unknown tagged
fields are skipped, as the protocol demands (KIP-482), and any byte except 0 is a true boolean, as in Kafka.

A reader is generated as Python source from the schema, once per message and version.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, Final, TypeAlias

from kohort.model.errors import WireError
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire.generated.decoders import DecoderWriter
from kohort.wire.message_classes import message_classes
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
    writer = _GradualWriter(classes)
    writer.emit("u = s = 0")
    writer.emit("if s: yield")
    message = writer.build(schema.name, writer.message(schema, version, "frame", "p"))
    read = writer.compile("frame, p, elements_max", message)

    def read_gradually(frame: bytes, offset: int, elements_max: int) -> Generator[None, None, Any]:
        try:
            return (yield from read(frame, offset, elements_max))
        except WireError:
            raise
        except Exception as exc:
            raise WireError(f"{schema.name} version {version} cannot be read: {type(exc).__name__} {exc}") from exc

    return read_gradually


def refuse_message(message_name: str, elements_max: int) -> None:
    raise WireError(f"{message_name} has more than {elements_max} elements")


class _GradualWriter(DecoderWriter):
    """Writes the source of a reader, in which `u` counts elements, and `s` those of a step. Fields are those of the version."""

    UTF8_ERRORS: ClassVar = "strict"

    def __init__(self, classes: Mapping[str, type]) -> None:
        super().__init__(classes)
        self.namespace |= {"new": object.__new__, "refuse_message": refuse_message}

    def message(self, schema: Message, version: int, buffer: str, start: int | str) -> dict[str, str]:
        self.defaults = dict(message_classes(schema.name))
        return super().message(schema, version, buffer, start)

    def build(self, struct: str, values: Mapping[str, str]) -> str:
        self.flush()
        self.namespace[struct] = self.classes[struct]
        made = self.name()
        self.emit(f"{made} = new({struct})")
        for field in self.schema.fields(struct, self.version):
            self.emit(f"{made}.{field.name} = {values[field.name]}")
        return made

    def is_null(self, _field: Field) -> str:
        return "frame[p - 1] == 255"

    def length(self, field_path: str, *, is_string: bool = False) -> str:
        size = super().length(field_path, is_string=is_string)
        if not self.is_flexible:
            self.emit(f"if {size} < -1: refuse_length({field_path!r}, {size})")
        elif is_string:
            self.emit(f"if {size} > {STRING_BYTES_MAX}: refuse_length({field_path!r}, {size})")
        return size

    def numbers(self, type_: str, count: str, name: str) -> None:
        self.emit(f"{name} = []")
        with self.block(f"while {count} > 0:"):
            self.emit(f"n = {count} if {count} < {_STEP_NUMBERS} else {_STEP_NUMBERS}")
            self.emit(f"{name} += unpack_from(f'>{{n}}{FIXED_FORMATS[type_]}', frame, p)")
            self.emit(f"p += n * {FIXED_WIDTHS[type_]}; {count} -= n; s += n")
            self.emit(f"if s >= {_STEP_NUMBERS}: s = 0; yield")
        self.emit(f"{name} = tuple({name})")

    def claim(self, count: str) -> None:
        self.emit(f"u += {count}")
        self.emit(f"if u > elements_max: refuse_message({self.schema.name!r}, elements_max)")

    def step(self) -> None:
        self.emit("s += 1")
        self.emit(f"if s >= {STEP_ELEMENTS}: s = 0; yield")
