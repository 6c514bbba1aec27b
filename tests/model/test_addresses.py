"""Addresses in Java's text."""

import pytest

from kohort.model.addresses import java_text


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("2001:DB8::10:0", "2001:db8:0:0:0:0:10:0"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_an_address_is_written_as_in_java(host: str, text: str) -> None:
    assert java_text(host) == text
