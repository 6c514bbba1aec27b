"""Ranges of addresses in ACLs: what Kafka's CidrUtils of 4.4.0 accepts, refuses and finds within."""

import pytest

from kohort.security.acls.hosts import address_of, parse_range


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("10.0.0.0/032", "Could not parse [10.0.0.0/032]"),
        ("256.0.0.0/8", "Value [256] not in range [0,255]"),
        ("1000.0.0.0/8", "Could not parse [1000.0.0.0/8]"),
        (" 10.0.0.0/8", "Could not parse [ 10.0.0.0/8]"),
        ("10.0.0.0/-1", "Could not parse [10.0.0.0/-1]"),
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("/8", "Could not parse [/8]"),
        ("example/8", "Could not parse [example/8]"),
        ("10.0.0.0/8/8", "Could not parse [10.0.0.0/8/8]"),
        ("\u0661.0.0.0/8", "Could not parse [\u0661.0.0.0/8]"),
        ("a/b:c", "Could not parse [a/b:c] - invalid prefix length"),
        ("::/0/1", "Could not parse [::/0/1] - invalid prefix length"),
        ("::/-1", "Could not parse [::/-1] - prefix length must be between 0 and 128"),
        ("::/", "Could not parse [::/] - invalid prefix length"),
        ("::/ 8", "Could not parse [::/ 8] - invalid prefix length"),
        ("::/999999999999", "Could not parse [::/999999999999] - invalid prefix length"),
        ("::1/129", "Could not parse [::1/129] - prefix length must be between 0 and 128"),
        (":/8", "Could not parse [:]"),
        ("::1::/8", "Could not parse [::1::]"),
        ("g::/8", "Could not parse [g::]"),
        ("12345::/64", "Could not parse [12345::]"),
        ("1:2:3:4:5:6:7/64", "Could not parse [1:2:3:4:5:6:7]"),
        ("::1 /64", "Could not parse [::1 ]"),
        ("10.0.0.0:/8", "Could not parse [10.0.0.0:]"),
        ("::ffff:1.2.3.4/96", "Could not parse [::ffff:1.2.3.4] - not an IPv6 address"),
        ("::ffff:0:0/0", "Could not parse [::ffff:0:0] - not an IPv6 address"),
    ],
)
def test_a_text_that_is_no_range_is_refused_in_kafkas_words(text: str, error: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_range(text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/0",
        "10.0.0.0/00",
        "1.2.3.4/08",
        "::/0128",
        "::/+8",
        "FE80::/10",
        "fe80::1%eth0/10",
        "[::1]/64",
        "::1.2.3.4/96",
        "::01.2.3.4/96",
        "00001::/8",
        "1:2:3:4:5:6:7::/64",
        "::2:3:4:5:6:7:8/64",
    ],
)
def test_a_range_is_accepted(text: str) -> None:
    parse_range(text)


@pytest.mark.parametrize(
    ("host", "text", "is_within"),
    [
        ("127.0.0.1", "::/0", False),
        ("0:0:0:0:0:0:0:1", "127.0.0.0/8", False),
        ("0:0:0:0:0:0:0:1", "::/0", True),
        ("0:0:0:0:0:0:0:1", "::1/128", True),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::/10", True),
        ("1.2.3.4", "1.2.3.4/32", True),
        ("1.2.3.5", "1.2.3.4/31", True),
        ("1.2.3.6", "1.2.3.4/31", False),
        ("1.2.3.0", "1.2.3.0/24", True),
        ("1.2.3.255", "1.2.3.0/24", True),
        ("255.255.255.255", "0.0.0.0/0", True),
        ("200.0.0.1", "128.0.0.0/1", True),
        ("10.1.1.1", "010.0.0.5/8", True),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::5/32", True),
        ("2001:db8:8000:0:0:0:0:1", "2001:db8::5/33", False),
        ("hostname", "10.0.0.0/8", False),
        ("", "fe80::/10", False),
    ],
)
def test_an_address_is_within_a_range(host: str, text: str, is_within: bool) -> None:
    address, (version, length, bits) = address_of(host), parse_range(text)
    assert (address.version == version and address.first(length) == bits) == is_within
