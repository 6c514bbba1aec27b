"""
Names in certificates: the subject in RFC 2253 form as Java prints it, and the alternative names.

The certificates come from a TLS library that has read them already.

Source: RFC 2253, RFC 5280, X.690; java.security.auth.x500.X500Principal.getName, sun.security.x509.AVA.toRFC2253String.
"""

import re
from collections.abc import Iterator
from typing import Final

from kohort.model.errors import WireError

_KEYWORDS: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
"""The names of attribute types in RFC 2253. Other types have their numbers."""
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java takes the bytes of each for UTF-8."""
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')
_ENDS: Final = re.compile(r"\A[ \r]+|[ \r]+\Z")
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_OCTETS: Final = 0x04
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")


def subject_of(certificate: bytes) -> str:
    """
    The name of the subject, its most specific part first: `CN=alice,OU=x,O=y`.

    Args:
        certificate: encoded by DER.

    Raises:
        WireError: the certificate is malformed.
    """
    return name_text(_parts(certificate)[4][1])


def name_text(name: bytes) -> str:
    """The text of an encoded name, without its tag and length. Raises: as `subject_of`."""
    sets = [content for _, content, _ in _elements(name)]
    return ",".join("+".join(_attribute(content) for _, content, _ in _elements(one)) for one in reversed(sets))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """The alternative names of the subject, each in its encoding. Arguments and errors: as `subject_of`."""
    for tag, extensions, _ in _parts(certificate)[5:]:
        if tag == _EXTENSIONS:
            for _, extension, _ in _elements(_first(extensions)[1]):
                kind, *_, value = _elements(extension)
                if kind[1] == _ALTERNATIVE_NAMES and value[0] == _OCTETS:
                    return frozenset(whole for _, _, whole in _elements(_first(value[1])[1]))
    return frozenset()


def _parts(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """The parts of the signed content, from the serial number on. The fifth is the subject."""
    _, content, _ = _first(certificate)
    _, signed, _ = _first(content)
    parts = list(_elements(signed))
    if parts and parts[0][0] == _VERSION:
        del parts[0]
    if len(parts) < 5 or parts[4][0] != _SEQUENCE:
        raise WireError("a certificate without a subject")
    return parts


def _first(data: bytes) -> tuple[int, bytes, bytes]:
    for element in _elements(data):
        return element
    raise WireError("a certificate with an empty part")


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content, and the whole encoding, of each element."""
    position = 0
    while position < len(data):
        begin = position
        tag, position = data[position], position + 1
        size = data[position] if position < len(data) else 0x80
        position += 1
        if size & 0x80:
            digits = size & 0x7F
            if not 1 <= digits <= 4:
                raise WireError("a certificate with a length of another form")
            size = int.from_bytes(data[position : position + digits], "big")
            position += digits
        end = position + size
        if end > len(data):
            raise WireError("a certificate that is cut short")
        yield tag, data[position:end], data[begin:end]
        position = end


def _attribute(content: bytes) -> str:
    elements = list(_elements(content))
    if len(elements) != 2:
        raise WireError("an attribute of a name without type and value")
    (_, kind, _), (tag, value, whole) = elements
    keyword = _KEYWORDS.get(kind)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or _dotted(kind)}=#{whole.hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", value.decode(errors="replace")).replace("\0", r"\00")
    return f"{keyword}={_ENDS.sub(lambda match: re.sub('.', _with_backslash, match[0], flags=re.DOTALL), text)}"


def _with_backslash(match: re.Match[str]) -> str:
    return f"\\{match[0]}"


def _dotted(kind: bytes) -> str:
    """The numbers of an object identifier."""
    numbers: list[int] = []
    number = 0
    for byte in kind:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:]))) if numbers else ""
