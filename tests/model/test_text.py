"""Texts of clients as people see them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kohort.model.text import printable, printable_json, printable_lines


def test_control_characters_are_escaped_and_other_texts_stay() -> None:
    assert printable("a\x1b[31m\n\x9b\x7f\u2028\u202e\x00") == r"a\x1b[31m\n\x9b\x7f\u2028\u202e\x00"
    assert printable_lines("a\nb\r\x1b") == "a\nb\\r\\x1b"
    for text in ("", "größe, 組, 🙂 und\u00a0mehr", "a\\b"):
        assert printable(text) == printable_lines(text) == printable_json(text) == text


@given(st.text())
def test_json_keeps_its_meaning(text: str) -> None:
    shown = printable_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(shown) == [text]
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)
