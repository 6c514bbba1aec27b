"""The common parts of readers that are generated as Python source: the lines, and the section of tagged fields."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from kohort.model.errors import WireError
from kohort.model.limits import ARRAY_ELEMENTS_MAX, SECTION_TAGS_MAX
from kohort.wire.primitives import read_uvarint
from kohort.wire.schema import Field


def refuse_count(field_path: str, count: int, left: int) -> None:
    raise WireError(f"{field_path} claims {count} elements in the remaining {left} bytes")


def refuse_elements(field_path: str, count: int) -> None:
    raise WireError(f"{field_path} has {count} elements; at most {ARRAY_ELEMENTS_MAX} are accepted")


def refuse_tags(struct: str, count: int) -> None:
    raise WireError(f"{struct} has {count} tagged fields; at most {SECTION_TAGS_MAX} are accepted")


def refuse_null(field_path: str) -> None:
    raise WireError(f"{field_path} must not be null")


def refuse_tag(field_path: str, size: int, found: int) -> None:
    raise WireError(f"the tagged field {field_path} states {size} bytes and has {found}")


def refuse_length(field_path: str, length: int) -> None:
    raise WireError(f"{field_path} has a length of {length}")


class SourceWriter:
    """
    Writes the source of a function that goes through a message in the buffer `frame`, from position `p` up to `end`.

    Attributes:
        namespace: what the source refers to, by name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.namespace: dict[str, Any] = {
            "read_uvarint": read_uvarint,
            "refuse_count": refuse_count,
            "refuse_elements": refuse_elements,
            "refuse_length": refuse_length,
            "refuse_null": refuse_null,
            "refuse_tag": refuse_tag,
            "refuse_tags": refuse_tags,
        }

    def compiled(self, arguments: str, what: str) -> Any:
        """The function of these arguments; `what` names it in a traceback."""
        source = f"def read({arguments}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<{what}>", "exec"), self.namespace)  # noqa: S102
        return self.namespace["read"]

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, header: str) -> Generator[None, None, None]:
        """Emit the first line of a block; what is emitted meanwhile belongs to the block."""
        self.emit(header)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def flush(self) -> None:
        """Go past the fields of fixed width that were visited."""
        raise NotImplementedError

    def tags(self, tagged: list[Field], struct: str, values: Mapping[str, str]) -> None:
        """
        Go through the tagged fields at the end of a struct: known ones by their content, as kio and Kafka do.

        Args:
            values: the variables that take the values, by field, if the source reads any.
        """
        self.flush()
        count, tag, size, start = self.name(), self.name(), self.name(), self.name()
        self.emit(f"{count} = frame[p]; p += 1")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.emit(f"{count}, p = read_uvarint(frame, p - 1)")
                self.emit(f"if {count} > {SECTION_TAGS_MAX}: refuse_tags({struct!r}, {count})")
            self.claim(count)
            with self.block(f"for _ in range({count}):"):
                self.step()
                self.emit(f"{tag}, p = read_uvarint(frame, p)")
                self.emit(f"{size}, p = read_uvarint(frame, p)")
                self.emit(f"{start} = p")
                for index, field in enumerate(tagged):
                    field_path = f"{struct}.{field.name}"
                    with self.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                        self.tagged(field, field_path, values)
                        self.emit(f"if p - {start} != {size}: refuse_tag({field_path!r}, {size}, p - {start})")
                self.unknown(tagged, size)

    def claim(self, count: str) -> None:
        """Called with the variable of each count of elements, before they are read."""

    def step(self) -> None:
        """Called at the beginning of each element."""

    def tagged(self, field: Field, field_path: str, values: Mapping[str, str]) -> None:
        """Go through a known tagged field."""
        raise NotImplementedError

    def unknown(self, tagged: list[Field], size: str) -> None:
        """Handle an unknown tagged field, behind the branches of the known ones."""
        raise NotImplementedError
