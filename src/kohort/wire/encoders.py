"""
Messages to bytes: one encoder per message and version, compiled at its first use.

An encoder is generated as Python source from the schema. It takes an instance of a message class (or any object with the same
attributes) and returns the complete frame: size, header, body. Fields that the version lacks are left out, so one response
class serves every version. Adjacent fields of fixed width are packed by one call, together with an empty section of tagged
fields. A tagged field that has its default is left out, as in Kafka.

A string of a response is cut to the size that the protocol allows: a message about an error may repeat several strings of the
request, and earlier versions stored longer names. Any other value that the protocol cannot express (an integer that is too
large, null in a field that is not nullable, a long string in a request) is a defect of the caller. It raises the error of
Python: `struct.error`, `TypeError`, `AttributeError`.

The interpreter reads the names in the namespace of an encoder from fixed places, and the attributes of messages, too. It does
not if mypyc compiles this module: a dict display of compiled code is a dict for keys of any type.
"""

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from kohort.model.errors import WireError
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.message_classes import default_value, message_classes
from kohort.wire.primitives import cut_utf8, write_uvarint
from kohort.wire.schema import FIXED_FORMATS, FIXED_WIDTHS, Field, Message, message

ResponseEncoder: TypeAlias = Callable[[int, Any], bytes]
"""(correlation id, response) to the complete frame."""

GradualEncoder: TypeAlias = Callable[[int, Any], Generator[None, None, bytes]]
"""As `ResponseEncoder`, in steps of `STEP_ELEMENTS` elements."""

RequestEncoder: TypeAlias = Callable[[int, str | None, Any], bytes]
"""(correlation id, client id, request) to the complete frame."""

DataEncoder: TypeAlias = Callable[[Any], bytes]
"""A message without a frame to its bytes."""


STEP_ELEMENTS: Final = 256
"""Elements between two yields of a gradual encoder; they take up to half a millisecond."""


@cache
def response_encoder(api_key: int, version: int) -> ResponseEncoder:
    """
    The encoder of a response.

    Raises:
        WireError: there is no such API, or no such version of it.
    """
    encoder: ResponseEncoder = _response_writer(api_key, version).compile("correlation_id, x0")
    if api_key == ApiKey.PRODUCE:
        from kohort.wire.produce_codec import ProduceEncoder, has_usual_messages

        if has_usual_messages(version):
            answer: Any = message_classes("ProduceResponse")["ProduceResponsePartitionProduceResponse"]()
            return ProduceEncoder(version, answer.current_leader, encoder).encode
    return encoder


@cache
def gradual_response_encoder(api_key: int, version: int) -> GradualEncoder:
    """The encoder of a response in steps. As `response_encoder`."""
    encoder: GradualEncoder = _response_writer(api_key, version, is_gradual=True).compile("correlation_id, x0")
    return encoder


@cache
def request_encoder(api_key: int, version: int) -> RequestEncoder:
    """The encoder of a request, for clients and tests. As `response_encoder`."""
    api = _api(api_key, version)
    writer = _frame_writer(f"{api.api_name}Request", version)
    writer.run = [("i", "0"), ("h", str(int(api))), ("h", str(version)), ("i", "correlation_id")]
    # The length of the client id has two bytes in every version, because a broker reads it before it knows the version.
    writer.legacy_text("client_id", is_nullable=True)
    if api.request_header_version(version) == 2:
        writer.run.append(("x", ""))
    encoder: RequestEncoder = writer.compile("correlation_id, client_id, x0")
    return encoder


def compile_encoder(
    schema: Message,
    version: int,
    *,
    prefix: Sequence[tuple[str, int]] = (),
    classes: Mapping[str, type] | None = None,
) -> DataEncoder:
    """
    The encoder of a message without a frame, behind constants.

    Args:
        prefix: format characters of `struct` and numbers, such as the version of a coordinator record.
        classes: of nested structs, for defaults that are structs.
    """
    writer = _EncoderWriter(schema, version, classes or {})
    writer.run = [(character, str(number)) for character, number in prefix]
    encoder: DataEncoder = writer.compile("x0", is_frame=False)
    return encoder


def _frame_writer(name: str, version: int, *, is_gradual: bool = False) -> "_EncoderWriter":
    return _EncoderWriter(message(name), version, message_classes(name), is_gradual=is_gradual)


def _response_writer(api_key: int, version: int, *, is_gradual: bool = False) -> "_EncoderWriter":
    api = _api(api_key, version)
    writer = _frame_writer(f"{api.api_name}Response", version, is_gradual=is_gradual)
    writer.is_response = True
    writer.run = [("i", "0"), ("i", "correlation_id")]
    if api.response_header_version(version):
        writer.run.append(("x", ""))
    return writer


def _api(api_key: int, version: int) -> ApiKey:
    api = API_KEYS.get(api_key)
    if api is None or not api.oldest <= version <= api.newest:
        raise WireError(f"there is no version {version} of the API with key {api_key}")
    return api


_TEXTS_MAX: Final = 4_096
_TEXT_BYTES_MAX: Final = 128
_texts: Final[dict[str, bytes]] = {}
"""Compact strings of responses with their lengths, unless they are long: names of groups, topics and members come again."""


def _compact_text(text: str) -> bytes:
    """A string of a response in its compact form."""
    encoded = text.encode()
    if len(encoded) > STRING_BYTES_MAX:
        encoded = cut_utf8(encoded)
    out = bytearray()
    write_uvarint(out, len(encoded) + 1)
    out += encoded
    compact = bytes(out)
    if len(compact) <= _TEXT_BYTES_MAX:
        if len(_texts) >= _TEXTS_MAX:
            _texts.clear()
        _texts[text] = compact
    return compact


_SHORT: Final = tuple(bytes((number,)) for number in range(128))
"""Numbers of one byte, as unsigned varints."""


def _uvarint(number: int) -> bytes:
    out = bytearray()
    write_uvarint(out, number)
    return bytes(out)


def _string_length(length: int) -> bytes:
    if length > STRING_BYTES_MAX + 1:
        raise struct.error(f"a string of {length - 1} bytes")
    return _uvarint(length)


class _EncoderWriter:
    """
    Writes the source of an encoder, which appends bytes to the list `out` and joins them at the end.

    Attributes:
        run: fields of fixed width that are visited and not yet written: format character and expression.
        has_records: whether there are record batches, which are copied once only.
        is_begun: whether `out` exists.
        is_frame: whether the size comes first.
        is_gradual: whether the encoder is a generator that yields after some elements.
        is_response: whether long strings are cut.
    """

    def __init__(self, schema: Message, version: int, classes: Mapping[str, type], *, is_gradual: bool = False) -> None:
        self.is_gradual = is_gradual
        self.is_response = False
        self.schema = schema
        self.version = version
        self.is_flexible = schema.is_flexible(version)
        self.classes = dict(classes)
        self.run: list[tuple[str, str]] = []
        self.has_records = any(
            field.type == "records" and field.is_in(version) for fields in schema.structs.values() for field in fields
        )
        self.is_begun = False
        self.is_frame = True
        self.depth = 1
        self.names = 0
        self.lines: list[str] = []
        self.out = "out"
        self.namespace: dict[str, Any] = {
            "SHORT": _SHORT,
            "uvarint": _uvarint,
            "string_length": _string_length,
            "cut_utf8": cut_utf8,
            "known_text": _texts.get,
            "compact_text": _compact_text,
            "NO_UUID": bytes(16),
            "pack": struct.pack,
            "PACK_i": struct.Struct(">i").pack,
        }

    def compile(self, arguments: str, *, is_frame: bool = True) -> Any:
        """The encoder as a function of `arguments`, of which `x0` is the message."""
        self.is_frame = is_frame
        if self.is_gradual:
            self.lines += ["    s = 0; parts = []", "    if s: yield"]
        self.struct(self.schema.name, "x0")
        if self.is_begun:
            self.finish()
        elif not is_frame:
            self.emit(f"return {self.packed()}")
        else:
            size = sum(struct.calcsize(f">{character}") for character, _ in self.run) - 4
            self.run[0] = ("i", str(size))
            self.emit(f"return {self.packed()}")
        source = f"def encode({arguments}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<encoder of {self.schema.name} v{self.version}>", "exec"), self.namespace)  # noqa: S102
        return self.namespace["encode"]

    def finish(self) -> None:
        self.flush()
        if self.is_gradual:
            self.emit("out[:0] = parts")
        if self.is_frame and self.has_records:
            self.emit("out.insert(0, PACK_i(sum(map(len, out))))")
        self.emit("out = b''.join(out)")
        self.emit(f"return {'PACK_i(len(out)) + ' if self.is_frame and not self.has_records else ''}out")

    # Writing code

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def packed(self) -> str:
        """The call that packs the run, which is then empty."""
        form = "".join(character for character, _ in self.run)
        arguments = ", ".join(expression for _, expression in self.run if expression)
        self.run = []
        if set(form) == {"x"}:
            return repr(bytes(len(form)))
        constant = f"PACK_{form.replace('?', '_')}"
        self.namespace[constant] = struct.Struct(f">{form}").pack
        return f"{constant}({arguments})"

    def flush(self) -> None:
        if not self.is_begun:
            self.is_begun = True
            if self.is_frame:
                del self.run[0]
            self.emit(f"out = [{self.packed()}]")
        elif self.run:
            self.write(self.packed())

    def write(self, expression: str) -> None:
        self.emit(f"{self.out}.append({expression})")

    def struct(self, struct_name: str, value: str) -> None:
        fields = self.schema.fields(struct_name, self.version)
        for field in fields:
            if field.tag is None:
                self.field(field, f"{value}.{field.name}")
        if self.is_flexible:
            tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
            self.tags(tagged, value)

    def field(self, field: Field, value: str) -> None:
        is_nullable = field.is_nullable(self.version)
        if field.array:
            self.array(field, value, is_nullable=is_nullable)
        elif field.type in self.schema.structs:
            self.nested(field, value, is_nullable=is_nullable)
        elif field.type in FIXED_WIDTHS:
            self.run.append(self.fixed(field.type, value))
        elif field.type == "string":
            # If only newer versions have null, older versions write the empty string (JoinGroup's protocol name before 7).
            self.text(value if is_nullable or field.nullable is None else f"({value} or '')", is_nullable=is_nullable)
        else:
            self.blob(value, is_nullable=is_nullable)

    def fixed(self, type_: str, value: str) -> tuple[str, str]:
        if type_ == "uuid":
            return "16s", f"{value}.bytes if {value} is not None else NO_UUID"
        return FIXED_FORMATS[type_], value

    def text(self, value: str, *, is_nullable: bool) -> None:
        if not self.is_flexible:
            self.legacy_text(value, is_nullable=is_nullable)
            return
        name = self.name()
        self.flush()
        self.null_branch(name, value, b"\0", is_nullable=is_nullable)
        if self.is_response:
            if not is_nullable:
                self.emit(f"{name} = {value}")
            self.write(f"known_text({name}) or compact_text({name})")
        else:
            self.emit(f"{name} = {name}.encode()" if is_nullable else f"{name} = {value}.encode()")
            self.compact_length(f"len({name})", is_string=True)
            self.write(name)
        self.depth -= is_nullable

    def legacy_text(self, value: str, *, is_nullable: bool) -> None:
        """A string behind a length of two bytes; the length is packed together with the fields before it."""
        name = self.name()
        if is_nullable:
            self.emit(f"{name} = {value}")
            self.emit(f"if {name} is not None: {name} = {name}.encode()")
            self.cut(f"{name} is not None and len({name})", name)
            self.run.append(("h", f"len({name}) if {name} is not None else -1"))
            self.flush()
            self.emit(f"if {name}: {self.out}.append({name})")
        else:
            self.emit(f"{name} = {value}.encode()")
            self.cut(f"len({name})", name)
            self.run.append(("h", f"len({name})"))
            self.flush()
            self.write(name)

    def cut(self, length: str, name: str) -> None:
        if self.is_response:
            self.emit(f"if {length} > {STRING_BYTES_MAX}: {name} = cut_utf8({name})")

    def blob(self, value: str, *, is_nullable: bool) -> None:
        """Bytes or record batches."""
        name = self.name()
        if not is_nullable:
            self.emit(f"{name} = {value}")
        self.counted(name, value, is_nullable=is_nullable)
        self.write(name)
        self.depth -= is_nullable

    def null_branch(self, name: str, value: str, null: bytes, *, is_nullable: bool) -> None:
        """For a nullable value: bind it, write null, and open the branch for a value that is not null."""
        if is_nullable:
            self.emit(f"{name} = {value}")
            self.emit(f"if {name} is None: {self.out}.append({null!r})")
            self.emit("else:")
            self.depth += 1

    def counted(self, name: str, value: str, *, is_nullable: bool) -> None:
        """Write the length of bytes or an array, or null; what follows is for a value that is not null."""
        self.flush()
        null = b"\0" if self.is_flexible else b"\xff\xff\xff\xff"
        self.null_branch(name, value, null, is_nullable=is_nullable)
        if self.is_flexible:
            self.compact_length(f"len({name})")
        else:
            self.write(f"PACK_i(len({name}))")

    def compact_length(self, length: str, *, is_string: bool = False) -> None:
        self.emit(f"n = {length} + 1")
        self.write(f"SHORT[n] if n < 128 else {'string_length' if is_string else 'uvarint'}(n)")

    def nested(self, field: Field, value: str, *, is_nullable: bool) -> None:
        if not is_nullable:
            self.struct(field.type, value)
            return
        name = self.name()
        self.flush()
        # One byte says whether a struct follows: -1 for null, but 0 in a tagged field.
        self.null_branch(name, value, b"\xff" if field.tag is None else b"\0", is_nullable=True)
        self.write(r"b'\x01'")
        self.struct(field.type, name)
        self.flush()
        self.depth -= 1

    def array(self, field: Field, value: str, *, is_nullable: bool) -> None:
        name = self.name()
        if not is_nullable:
            self.emit(f"{name} = {value} or ()" if field.nullable else f"{name} = {value}")
        if not self.is_flexible and not is_nullable:
            self.run.append(("i", f"len({name})"))
            self.flush()
        else:
            self.counted(name, value, is_nullable=is_nullable)
        self.elements(field, name)
        self.depth -= is_nullable

    def elements(self, field: Field, array: str) -> None:
        if field.type in FIXED_FORMATS:
            self.numbers(array, FIXED_FORMATS[field.type])
            return
        element = self.name()
        if field.type in self.schema.structs and self.is_fixed(field.type) and not self.is_gradual:
            self.struct(field.type, element)
            self.emit(f"{self.out} += [{self.packed()} for {element} in {array}]")
            return
        self.emit(f"for {element} in {array}:")
        self.depth += 1
        if self.is_gradual:
            self.emit("s += 1")
            join = "" if self.has_records else " parts.append(b''.join(out)); out.clear();"
            self.emit(f"if s >= {STEP_ELEMENTS}: s = 0;{join} yield")
        if field.type in self.schema.structs:
            self.struct(field.type, element)
        elif field.type == "uuid":
            self.run.append(self.fixed("uuid", element))
        else:
            self.text(element, is_nullable=False)
        self.flush()
        self.depth -= 1

    def numbers(self, array: str, form: str) -> None:
        if not self.is_gradual:
            self.emit(f"if {array}: {self.out}.append(pack(f'>{{len({array})}}{form}', *{array}))")
            return
        self.emit(f"for n in range(0, len({array} or ()), {STEP_ELEMENTS}):")
        self.emit(
            f"    {self.out}.append(pack(f'>{{len({array}[n:n + {STEP_ELEMENTS}])}}{form}', *{array}[n:n + {STEP_ELEMENTS}]))"
        )
        self.emit("    yield")

    def is_fixed(self, struct_name: str) -> bool:
        """Whether a struct always has the same width."""
        return all(
            field.tag is None
            and not field.array
            and (field.type in FIXED_WIDTHS or (field.type in self.schema.structs and self.is_fixed_nested(field)))
            for field in self.schema.fields(struct_name, self.version)
        )

    def is_fixed_nested(self, field: Field) -> bool:
        return not field.is_nullable(self.version) and self.is_fixed(field.type)

    def tags(self, tagged: list[Field], value: str) -> None:
        """The section of tagged fields: a count, then each field that differs from its default."""
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        count, section = self.name(), self.name()
        self.emit(f"{count} = 0; {section} = []")
        for field in tagged:
            name, content, default = self.name(), self.name(), self.name().upper()
            self.namespace[default] = default_value(field, self.classes)
            self.emit(f"{name} = {value}.{field.name}")
            self.emit(f"if {name} is not {default} and {self.differs(field, name, default)}:")
            self.depth += 1
            self.emit(f"{count} += 1; {content} = []")
            outer, self.out = self.out, content
            self.field(field, name)
            self.flush()
            self.out = outer
            self.emit(f"{content} = b''.join({content})")
            self.emit(f"{section} += ({_uvarint(field.tag or 0)!r}, uvarint(len({content})), {content})")
            self.depth -= 1
        self.emit(f"{self.out} += (SHORT[{count}], *{section})")

    def differs(self, field: Field, name: str, default: str) -> str:
        """Whether a value is not its default; an array of any kind without elements equals the empty one."""
        if field.array and field.default == []:
            return f"({name} is None or {name})" if field.is_nullable(self.version) else f"{name}"
        return f"{name} != {default}"
