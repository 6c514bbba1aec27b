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

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TypeAlias

from kohort.model.limits import ARRAY_ELEMENTS_MAX, STRING_BYTES_MAX
from kohort.wire.generated.source import SourceWriter
from kohort.wire.schema import FIXED_WIDTHS, Field, Message

Guard: TypeAlias = Callable[[bytes, int], None]
"""Walks a frame from an offset. Raises WireError, or IndexError if the frame ends early."""


class UnknownTag(Exception):  # noqa: N818 -- not an error: newer clients send them
    """A tagged field that this schema does not know."""


class LongMessage(Exception):  # noqa: N818 -- not an error: it is read in steps
    """A message with so many elements that it has to be read in steps."""


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
    writer.struct(message.name, is_last=not is_whole)
    guard: Guard = writer.compiled("frame, p", f"guard of {message.name} v{version}")
    return guard


class _GuardWriter(SourceWriter):
    """
    Writes the source of a guard.

    Attributes:
        pending: bytes of fixed width that are visited and not yet added to `p`.
    """

    def __init__(self, message: Message, version: int, elements_max: int | None) -> None:
        super().__init__()
        self.namespace |= {"LongMessage": LongMessage, "UnknownTag": UnknownTag, "from_bytes": int.from_bytes}
        self.elements_max = elements_max
        self.message = message
        self.version = version
        self.is_flexible = message.is_flexible(version)
        self.pending = 0
        self.emit("end = len(frame)")
        if elements_max is not None:
            self.emit(f"left = {elements_max}")

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

    def flush(self) -> None:
        if self.pending:
            self.emit(f"p += {self.pending}")
            self.pending = 0

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
            self.tags(tagged, struct, {})

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
        with self.block("if frame[p - 1] != 255:"):
            self.emit("pass")
            self.struct(field.type, is_last=is_last)
            self.flush()

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
        else:
            self.emit(f"if {count} > {ARRAY_ELEMENTS_MAX}: refuse_elements({field_path!r}, {count})")
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
            counts = f"frame[p + {size - 1}:p + {count} * {size}:{size}]"
            self.emit(f"if {counts}.count(0) == {count}: p += {count} * {size}")
        repeat = f"for _ in range({count} - 1):" if is_last else f"for _ in range({count}):"
        with self.block("else:") if size else nullcontext(), self.block(repeat):
            self.element(field, field_path, is_last=False)
            self.flush()
        if is_last:
            with self.block(f"if {count} > 0:"):
                self.element(field, field_path, is_last=True)
            self.pending = 0

    def element(self, field: Field, field_path: str, *, is_last: bool) -> None:
        if field.type in self.message.structs:
            self.struct(field.type, is_last=is_last)
        else:
            self.primitive(field, field_path)

    def tags(self, tagged: list[Field], struct: str, values: Mapping[str, str]) -> None:
        if tagged:
            super().tags(tagged, struct, values)
            return
        self.flush()
        self.emit("if frame[p]: raise UnknownTag")
        self.pending = 1

    def tagged(self, field: Field, field_path: str, _values: Mapping[str, str]) -> None:
        self.field(field, field_path, is_last=False)
        self.flush()

    def unknown(self, _tagged: list[Field], _size: str) -> None:
        self.emit("else: raise UnknownTag")
