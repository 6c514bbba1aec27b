"""How addresses are written."""

import pytest

from kohort.client.addresses import Address, parse_bootstrap
from kohort.model.errors import ConfigError

# fmt: off
ADDRESSES = {
    "localhost:9092":      [("localhost", 9092)],
    "localhost":           [("localhost", 9092)],
    "a:1,b:2":             [("a", 1), ("b", 2)],
    " a:1 , b:2 ,":        [("a", 1), ("b", 2)],
    "[::1]:9093":          [("::1", 9093)],
    "[::1]":               [("::1", 9092)],
    "a:65535":             [("a", 65535)],
}
REFUSED = ("", ",", "a:", ":1", "a:b", "a:0", "a:65536", "a:-1", "::1", "a:1:2", "[]:1", "a:\u0661")
# fmt: on


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items())
def test_an_address_is_a_host_and_a_port(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == [Address(*each) for each in expected]


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9092"):
        parse_bootstrap(text)


@pytest.mark.parametrize("text", ["localhost:9092", "[::1]:9093"])
def test_an_address_prints_as_it_is_written(text: str) -> None:
    assert [str(each) for each in parse_bootstrap(text)] == [text]
