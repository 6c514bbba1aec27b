"""Java properties files as Kafka's brokers and tools read them."""

import pytest

from kohort.model.properties import parse_properties

FILE = """\
# a comment
! another one

node.id=1
  log.dirs = /a, /b
listeners:PLAINTEXT://:9092
broker.rack rack-a
empty=
alone
url=http://host:80/?a=b
sasl.jaas.config=PlainLoginModule required \\
    username="u" \\
    password="p=\\"q";
windows=C:\\\\
node.id=2
"""


def test_every_form_of_a_line() -> None:
    assert parse_properties(FILE) == {
        "node.id": "2",
        "log.dirs": "/a, /b",
        "listeners": "PLAINTEXT://:9092",
        "broker.rack": "rack-a",
        "empty": "",
        "alone": "",
        "url": "http://host:80/?a=b",
        "sasl.jaas.config": 'PlainLoginModule required username="u" password="p=\\"q";',
        "windows": "C:\\\\",
    }
    assert parse_properties(FILE.replace("\n", "\r\n")) == parse_properties(FILE)


@pytest.mark.parametrize(("text", "line"), [("a=1\nsecurity.protocol\n", 2), ("\n\n=SSL", 3), ("a=1 \\\n x\n\\\n", 3)])
def test_a_line_without_name_or_separator_is_named(text: str, line: int) -> None:
    with pytest.raises(ValueError, match=f"^line {line}: "):
        parse_properties(text, is_strict=True)


def test_a_comment_within_a_continued_line_is_text() -> None:
    assert parse_properties("a=1,\\\n# 2,\\\n3\nb=4") == {"a": "1,# 2,3", "b": "4"}
