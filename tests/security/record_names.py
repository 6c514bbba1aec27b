"""
Asks Java and Apache Kafka's own classes for distinguished names and for the principals of mapping rules, and keeps the answers:

    python -m tests.security.record_names

Needs a JDK.
"""

# ruff: noqa: E501, RUF001

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kohort.testing.kafka import java, kafka_jars

RECORDED: Final = Path(__file__).parents[1] / "data" / "security" / "names.json"

OIDS: Final = {
    "CN": "0603550403", "SN": "0603550404", "C": "0603550406", "L": "0603550407", "ST": "0603550408", "STREET": "0603550409",
    "O": "060355040a", "OU": "060355040b", "T": "060355040c", "DNQ": "060355042e", "serial": "0603550405",
    "DC": "060a0992268993f22c640119", "UID": "060a0992268993f22c640101", "email": "06092a864886f70d010901",
    "ours": "060b2b06010401818d1f010102",
}  # fmt: skip
"""Attribute types with their encoded identifiers; two of them have no name in Java."""
PRINTABLE, UTF8, IA5, T61, BMP, UNIVERSAL, NUMERIC, INTEGER = 0x13, 0x0C, 0x16, 0x14, 0x1E, 0x1C, 0x12, 0x02

Attribute = tuple[str, int, bytes]

NAMES: Final[list[list[list[Attribute]]]] = [
    [],
    [[("C", PRINTABLE, b"DE")], [("O", UTF8, b"Org")], [("OU", UTF8, b"Test")], [("CN", UTF8, b"Duke")]],
    [[("CN", UTF8, b"a, b")], [("OU", UTF8, b"test")]],
    *([[("CN", UTF8, text.encode())]] for text in (
        "", " ", "  two ", "#hash", "in#side", "a+b", "a=b", 'q"q', "back\\slash", "<a>;", "/CN=root", "tab\tline\n", "nul\0",
        "\r a \r", "grüße", "日本", "\N{GRINNING FACE}", "\u202eabc", "a  b", ",", "x" * 200, "CN=a,OU=b", "\\,", "a\x7fb",
    )),
    [[("DC", IA5, b"example")], [("DC", IA5, b"com")], [("UID", UTF8, b"u1")]],
    [[("email", IA5, b"a@b.example")], [("CN", UTF8, b"mail")]],
    [[("serial", PRINTABLE, b"12")], [("SN", UTF8, b"Sur")], [("T", UTF8, b"Dr")], [("DNQ", PRINTABLE, b"q")]],
    [[("ours", UTF8, "ü".encode())], [("STREET", UTF8, b"Main 1")], [("L", UTF8, b"L")], [("ST", UTF8, b"S")]],
    [[("OU", UTF8, b"b"), ("CN", UTF8, b"a")]],
    [[("CN", UTF8, b"a"), ("OU", UTF8, b"b"), ("UID", UTF8, b"c")], [("O", UTF8, b"o")]],
    [[("CN", T61, b"t61 \xe4")]],
    [[("CN", T61, b"t61")]],
    [[("CN", BMP, "bmp".encode("utf-16-be"))]],
    [[("CN", BMP, "日本,".encode("utf-16-be"))]],
    [[("CN", UNIVERSAL, "abc".encode("utf-32-be"))]],
    [[("CN", NUMERIC, b"123")]],
    [[("CN", INTEGER, b"\x07")]],
    [[("CN", UTF8, b"bad \xff\xfe utf")]],
    [[("CN", PRINTABLE, b"under_score*")]],
    [[("CN", IA5, b"ia5 *")]],
    [[("CN", UTF8, b"y" * 130)], [("O", UTF8, b"z" * 300)]],
]  # fmt: skip

DUKE: Final = "CN=Duke,OU=Test,O=Org"
PRINCIPALS: Final = (
    DUKE,
    "CN=a\\, b,OU=test",
    "OU=only",
    "CN=Admin,OU=AdminUnit,O=Org",
    "",
    "CN=",
    "CN=İI,OU=ı",
    "CN=a/b,OU=x",
)
RULES: Final = (
    "DEFAULT", "", " DEFAULT ", "DEFAULT,DEFAULT", "DEFAULT,", ",DEFAULT", ",", " , ", "default", "L", "RULE:", "RULE:a/b", "RULE:^CN=(.*)/",
    "RULE:^CN=(.*?),.*$/$1/", "RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT", "RULE:^CN=(.*?)$/$1/U", "RULE:^CN=(.*?)$/$1/U,DEFAULT",
    "RULE:^CN=(.*?),OU=Admin.*$/admin/,RULE:.*CN=(.*?),.*/$1/", "RULE:^cn=(.*?),.*/$1/", "RULE:^CN=(.*?),.*/$2/",
    "RULE:^CN=(.*?),.*$/$1/U", "RULE:^CN=(.*?),.*$/$1/LU", "RULE:^CN=(.*?),.*$/$1/x", "RULE:^CN=(.*?),.*$/$1/ L",
    "RULE:^CN=(.*?),.*$/$1/L , RULE:OU=(.*)/u-$1/", "RULE:^CN=(.*?),.*$/$1/L RULE:OU=(.*)/$1/", "RULE:^CN=(.*?),.*$/$12/",
    "RULE:^CN=(.*?),.*$/$123x/", "RULE:^CN=(.*?),.*$/$0/", "RULE:^CN=(.*?),.*$/$01/", "RULE:^CN=(.*?),.*$/$1$3$2/",
    "RULE:^CN=(.*?),.*$/\\$1/", "RULE:^CN=(.*?),.*$/a\\/b$1/", "RULE:^CN=(.*?)\\/(.*?),.*$/$2/", "RULE:^CN=((?:\\\\,|[^,])*),.*$/$1/",
    "RULE:.*/nobody/", "RULE:.*/$1/", "RULE:.*/$/", "RULE:.*/a\\\\b/", "RULE:(.*)/x$1/", "RULE:(.*)/$1$/", "RULE:(.*)//",
    "RULE://x/", "RULE:^CN=(.*?)/$1/", "RULE:CN=(.*),OU=(.*)/$2-$1/", "RULE:(CN)=(D)(u)(k)(e)(,)(O)(U)(=)(T)(.*)/$10$11$12/",
    "RULE:(?i)^cn=(.*?),.*/$1/", "RULE:^CN=(\\w+),.*/$1/L", "RULE:^CN=([a-zA-Z0-9.]*).*$/$1/L", "RULE:^CN=(?<who>.*?),.*$/${who}/",
    "RULE:^CN=(?<who>.*?),.*$/$1/", "RULE:[/x/", "RULE:(/x/", "RULE:^CN=(.*?),.*$/$1/,RULE:a/b", "RULE:a/b,RULE:.*/x/",
    "RULE:^CN=(.*?),OU=.*/$1/L,RULE:.*/U/U, DEFAULT", "RULE:\\QCN=\\E(.*?),.*/$1/", "RULE:^CN=(\\p{Lu}.*?),.*/$1/", "RULE:^CN=(.*?),.*(?=Org)Org/$1/",
    "RULE:(.)(.).*\\1.*/$1$2/", "RULE:CN=([^,]++),.*/$1/", "RULE:CN=(.*?),.*\\z/$1/", "RULE:CN=(.*?),.*/$1\\,x/", "DEFAULT/", "xDEFAULT", "DEFAULTx",
    "RULE:^CN=(.*?),.*$/$1/L,,DEFAULT", "RULE:a/b/,x", "RULE:a/b/ DEFAULT",
)  # fmt: skip


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    encoded = (
        bytes([size])
        if size < 128
        else bytes([0x80 | (size.bit_length() + 7) // 8]) + size.to_bytes((size.bit_length() + 7) // 8, "big")
    )
    return bytes([tag]) + encoded + content


def der(name: list[list[Attribute]]) -> bytes:
    """The encoding of a name. The attributes of a set are in the order of their encodings, as DER wants it."""
    parts = b""
    for one in name:
        parts += tlv(0x31, b"".join(tlv(0x30, bytes.fromhex(OIDS[kind]) + tlv(tag, value)) for kind, tag, value in one))
    return tlv(0x30, parts)


def questions() -> Iterator[dict[str, str]]:
    for name in NAMES:
        yield {"der": der(name).hex()}
    for rules in RULES:
        for principal in PRINCIPALS:
            yield {"rules": rules, "name": principal}


def main() -> None:
    asked = list(questions())
    source = Path(__file__).with_name("Names.java")
    lines = "\n".join(json.dumps(question) for question in asked)
    done = subprocess.run(
        [java(), "-cp", f"{kafka_jars()}/*", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", str(source)],
        input=lines.encode(), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(asked)
    RECORDED.parent.mkdir(exist_ok=True)
    rows = [
        json.dumps({**question, "answer": answer}, ensure_ascii=True)
        for question, answer in zip(asked, answers, strict=True)
    ]
    RECORDED.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"{RECORDED.name}: {len(rows)} answers")


if __name__ == "__main__":
    main()
