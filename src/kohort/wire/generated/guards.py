"""
Guards: checks of a frame before kio's native reader sees it.

kio allocates eight bytes for each element that an array claims, before it reads one: a frame of sixty bytes that claims 2^32
elements ends the process. Therefore a message with arrays is walked first, up to its last array, and every claimed count times
the least size of an element must fit into the rest of the frame. The walk agrees with kio's reader byte for byte, up to the
first error. kio, like Kafka, reads a known tagged field by its content and not by its stated size, so the two must agree. A
null array in a field that is not nullable is refused too, because kio accepts it.

A guard is generated as Python source from the schema, once per message and version. Fields of fixed width become constants, and
fields after the last array are not visited. OffsetCommit of 100 partitions of one topic takes 0.4 us.

A string of more than `STRING_BYTES_MAX` is refused, as by Kafka. kio reads compact strings of any length, so a frame that has
room for such a string is walked to its end.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from kohort.model.errors import WireError
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire.primitives import read_uvarint
from kohort.wire.schema import FIXED_WIDTHS, Field, Message

Guard: TypeAlias = Callable[[bytes, int], None]
"""Walks a frame from an offset. Raises WireError, or IndexError if the frame ends early."""


class UnknownTag(Exception):  # noqa: N818 -- not an error: newer clients send them
    """A tagged field that this schema does not know."""


class LongMessage(Exception):  # noqa: N818 -- not an error: it is read in steps
    """A message with so many elements that it has to be read in steps."""


def refuse_count(field_path: str, count: int, left: int) -> None:
    raise WireError(f"{field_path} claims {count} elements in the remaining {left} bytes")


def refuse_null(field_path: str) -> None:
    raise WireError(f"{field_path} must not be null")


def refuse_tag(field_path: str, size: int, found: int) -> None:
    raise WireError(f"the tagged field {field_path} states {size} bytes and has {found}")


def refuse_length(field_path: str, length: int) -> None:
    raise WireError(f"{field_path} has a length of {length}")


def compile_guard(
    message: Message, version: int, elements_max: int | None = None, *, is_whole: bool = False
) -> Guard | None:
    """
    The guard of one version of a message; None if it has nothing to walk.

    Args:
        elements_max: with more elements in all arrays together, the guard raises LongMessage. None for any number.
        is_whole: walk a message to its end, for frames of more than `STRING_BYTES_MAX`.
    """
    writer = _GuardWriter(message, version, elements_max)
    if not is_whole and not writer.has_arrays(message.name):
        return None
    source = writer.source(is_whole=is_whole)
    namespace: dict[str, Any] = {
        "read_uvarint": read_uvarint,
        "refuse_count": refuse_count,
        "refuse_null": refuse_null,
        "refuse_tag": refuse_tag,
        "refuse_length": refuse_length,
        "LongMessage": LongMessage,
        "UnknownTag": UnknownTag,
        "from_bytes": int.from_bytes,
    }
    exec(compile(source, f"<guard of {message.name} v{version}>", "exec"), namespace)  # noqa: S102
    guard: Guard = namespace["guard"]
    return guard


class _GuardWriter:
    """
    Writes the source of a guard: `frame` is walked with the position `p` up to `end`.

    Attributes:
        pending: bytes of fixed width that are visited and not yet added to `p`.
        depth: levels of indentation, and the number in the names of loop variables.
    """

    def __init__(self, message: Message, version: int, elements_max: int | None) -> None:
        self.elements_max = elements_max
        self.message = message
        self.version = version
        self.is_flexible = message.is_flexible(version)
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.pending = 0

    def source(self, *, is_whole: bool) -> str:
        self.lines = ["def guard(frame, p):", "    end = len(frame)"]
        if self.elements_max is not None:
            self.emit(f"left = {self.elements_max}")
        self.struct(self.message.name, is_last=not is_whole)
        return "\n".join(self.lines) + "\n"

    def has_arrays(self, struct: str) -> bool:
        """Whether a struct has arrays, also in nested structs and tagged fields."""
        fields = self.message.fields(struct, self.version)
        return any(self.field_has_arrays(field) for field in fields)

    def field_has_arrays(self, field: Field) -> bool:
        return field.array or (field.type in self.message.structs and self.has_arrays(field.type))

    def fixed_size(self, field: Field) -> int:
        """The size of an element if it is the same for all elements, else 0."""
        if field.type not in self.message.structs:
            return FIXED_WIDTHS.get(field.type, 0)
        parts = [part for part in self.message.fields(field.type, self.version) if part.tag is None]
        if all(part.type in FIXED_WIDTHS and not part.array for part in parts):
            return self.message.least_struct_size(field.type, self.version)
        return 0

    # Writing code

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def flush(self) -> None:
        if self.pending:
            self.emit(f"p += {self.pending}")
            self.pending = 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def struct(self, struct: str, *, is_last: bool) -> None:
        """Walk a struct; the last struct of the message only up to its last array."""
        fields = [field for field in self.message.fields(struct, self.version) if field.tag is None]
        tagged = [field for field in self.message.fields(struct, self.version) if field.tag is not None]
        tags_have_arrays = any(self.field_has_arrays(field) for field in tagged)
        with_arrays = [index for index, field in enumerate(fields) if self.field_has_arrays(field)]
        stop = with_arrays[-1] if is_last and not tags_have_arrays and with_arrays else len(fields)
        for index, field in enumerate(fields):
            self.field(field, f"{struct}.{field.name}", is_last=index == stop)
            if index == stop:
                return
        if self.is_flexible and (tags_have_arrays or not is_last):
            self.tags(tagged, struct)

    def field(self, field: Field, field_path: str, *, is_last: bool) -> None:
        if field.array:
            self.array(field, field_path, is_last=is_last)
        elif field.type in self.message.structs:
            self.nested(field, is_last=is_last)
        else:
            self.primitive(field, field_path)

    def nested(self, field: Field, *, is_last: bool) -> None:
        if not field.is_nullable(self.version):
            self.struct(field.type, is_last=is_last)
            return
        self.flush()
        self.emit("p += 1")
        self.emit("if frame[p - 1] != 255:")
        self.depth += 1
        self.emit("pass")
        self.struct(field.type, is_last=is_last)
        self.flush()
        self.depth -= 1

    def primitive(self, field: Field, field_path: str) -> None:
        if field.type in FIXED_WIDTHS:
            self.pending += FIXED_WIDTHS[field.type]
            return
        self.flush()
        if self.is_flexible:
            self.emit("n = frame[p]; p += 1")
            self.emit("if n > 127:")
            self.emit("    n, p = read_uvarint(frame, p - 1)")
            if field.type == "string":
                self.emit(f"    if n > {STRING_BYTES_MAX + 1}: refuse_length({field_path!r}, n - 1)")
            self.emit("if n: p += n - 1")
            return
        if field.type == "string":
            self.emit("n = frame[p] << 8 | frame[p + 1]; p += 2")
            self.emit("if n < 32768: p += n")
            self.emit(f"elif n != 65535: refuse_length({field_path!r}, n - 65536)")
            return
        self.emit("n = from_bytes(frame[p:p + 4], 'big', signed=True); p += 4")
        self.emit("if n > 0: p += n")
        self.emit(f"elif n < -1: refuse_length({field_path!r}, n)")

    def array(self, field: Field, field_path: str, *, is_last: bool) -> None:
        """Read the count, compare it with the rest of the frame, and walk the elements if that is needed."""
        count = self.name()
        self.flush()
        if self.is_flexible:
            self.emit(f"{count} = frame[p] - 1; p += 1")
            self.emit(f"if {count} > 126: {count}, p = read_uvarint(frame, p - 1); {count} -= 1")
        else:
            self.emit(f"{count} = from_bytes(frame[p:p + 4], 'big', signed=True); p += 4")
            self.emit("if p > end: raise IndexError")
            self.emit(f"if {count} < -1: refuse_length({field_path!r}, {count})")
        least = self.message.least_element_size(field, self.version)
        self.emit(f"if {count} * {least} > end - p: refuse_count({field_path!r}, {count}, end - p)")
        if not field.is_nullable(self.version):
            self.emit(f"if {count} < 0: refuse_null({field_path!r})")
        if self.elements_max is not None:
            self.emit(f"left -= {count}")
            self.emit("if left < 0: raise LongMessage")
        self.elements(field, field_path, count, is_last=is_last)

    def elements(self, field: Field, field_path: str, count: str, *, is_last: bool) -> None:
        is_struct = field.type in self.message.structs
        if is_last and not (is_struct and self.has_arrays(field.type)):
            self.emit("return")
            return
        size = self.fixed_size(field)
        if size and not (is_struct and self.is_flexible):
            self.emit(f"if {count} > 0: p += {count} * {size}")
            return
        if size:
            # Each element ends in its count of tagged fields. If all counts are zero, the elements are skipped at once.
            self.emit(
                f"if frame[p + {size - 1}:p + {count} * {size}:{size}].count(0) == {count}: p += {count} * {size}"
            )
            self.emit("else:")
            self.depth += 1
        self.emit(f"for _ in range({count} - 1):" if is_last else f"for _ in range({count}):")
        self.depth += 1
        self.element(field, field_path, is_last=False)
        self.flush()
        self.depth -= 2 if size else 1
        if is_last:
            self.emit(f"if {count} > 0:")
            self.depth += 1
            self.element(field, field_path, is_last=True)
            self.depth -= 1
            self.pending = 0

    def element(self, field: Field, field_path: str, *, is_last: bool) -> None:
        if field.type in self.message.structs:
            self.struct(field.type, is_last=is_last)
        else:
            self.primitive(field, field_path)

    def tags(self, tagged: list[Field], struct: str) -> None:
        """Walk the tagged fields at the end of a struct, known ones by their content, as kio does."""
        if not tagged:
            self.flush()
            self.emit("if frame[p]: raise UnknownTag")
            self.pending = 1
            return
        self.flush()
        count, tag, size, start = self.name(), self.name(), self.name(), self.name()
        self.emit(f"{count} = frame[p]; p += 1")
        self.emit(f"if {count}:")
        self.depth += 1
        self.emit(f"if {count} > 127: {count}, p = read_uvarint(frame, p - 1)")
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.emit(f"{tag}, p = read_uvarint(frame, p)")
        self.emit(f"{size}, p = read_uvarint(frame, p)")
        self.emit(f"{start} = p")
        for index, field in enumerate(tagged):
            field_path = f"{struct}.{field.name}"
            self.emit(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, field_path, is_last=False)
            self.flush()
            self.emit(f"if p - {start} != {size}: refuse_tag({field_path!r}, {size}, p - {start})")
            self.depth -= 1
        self.emit("else: raise UnknownTag")
        self.depth -= 2
