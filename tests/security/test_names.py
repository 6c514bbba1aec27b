"""Distinguished names and mapping rules, as Java and Apache Kafka read them (`record_names.py`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError, WireError
from kohort.model.limits import DISTINGUISHED_NAME_LENGTH_MAX
from kohort.security.distinguished_names import name_text, subject_of
from kohort.security.mapping_rules import MappingRules

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data/security/names.json").read_text())
NOT_OF_RE2 = ("(?=", "\\1", "++")
"""In patterns that RE2 does not know. A listener with one of them does not start."""


def test_names_are_those_of_java() -> None:
    asked = [row for row in RECORDED if "der" in row]
    assert len(asked) > 40
    for row in asked:
        encoded = bytes.fromhex(row["der"])
        header = 2 if encoded[1] < 0x80 else 2 + (encoded[1] & 0x7F)
        assert name_text(encoded[header:]) == row["answer"]


def user_of(rules: str, name: str) -> str:
    """The answer in the form of the recording: `!` for invalid rules, `-` for no user, else `=` and the user."""
    try:
        user = MappingRules(rules).user_of(name)
    except ConfigError:
        return "!"
    return "-" if user is None else f"={user}"


def test_principals_are_those_of_kafka() -> None:
    asked = [row for row in RECORDED if "rules" in row]
    assert len(asked) > 500
    different = [
        (row["rules"], row["name"], found, row["answer"])
        for row in asked
        if (found := user_of(row["rules"], row["name"])) != row["answer"]
    ]
    assert all(found == "!" and any(sign in rules for sign in NOT_OF_RE2) for rules, _, found, _ in different), (
        different
    )
    assert {rules for rules, *_ in different} == {
        "RULE:^CN=(.*?),.*(?=Org)Org/$1/",
        "RULE:(.)(.).*\\1.*/$1$2/",
        "RULE:CN=([^,]++),.*/$1/",
    }


def test_the_first_of_several_matches_is_anchored_at_the_beginning_only() -> None:
    assert MappingRules("RULE:^CN=(.*?)/$1/").user_of("CN=CN=a") == "CN=a"


def test_apache_kafka_6099_commas_and_cve_2026_128424_escapes_of_patterns_are_kept() -> None:
    """A comma within a pattern divided the rules; a proxy dropped the backslashes of patterns."""
    rules = MappingRules(r"RULE:^CN=((?:\\,|[^,]){1,9}),OU=(.*?),.*$/$1\/$2/L, RULE:^CN=a\.b,.*$/dot/,DEFAULT")
    assert rules.user_of(r"CN=A\, b,OU=Unit,O=o") == r"a\, b/unit"
    assert rules.user_of("CN=a.b,O=o") == "dot"
    assert rules.user_of("CN=axb,O=o") == "CN=axb,O=o"


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("RULE:a/b", r"invalid rule 'RULE:a/b'"),
        ("DEFAULT,L", r"invalid rule 'L'"),
        ("RULE:(/x/", r"the pattern '\(' is not valid \(missing \)"),
        ("RULE:a(?=b)/x/", r"without lookaround"),
        ("RULE:.*/$/", r"the replacement '\$' has a \$ at its end"),
        ("RULE:.*/${who}/", r"an unknown group 'who'"),
        ("RULE:.*/$x/", r"\$x, which is no reference"),
    ],
)
def test_wrong_rules_are_refused_with_a_sentence(rules: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^ssl.principal.mapping.rules: .*{sentence}"):
        MappingRules(rules)


@pytest.mark.parametrize("separator", ["\r", "\x85", "\u2028", "\u2029"])
def test_a_name_with_a_separator_of_lines_or_of_great_length_has_no_user(separator: str) -> None:
    rules = MappingRules("RULE:CN=(.*)/$1/")
    assert rules.user_of("CN=a") == "a"
    assert rules.user_of(f"CN=a{separator}b") is None
    assert MappingRules("DEFAULT").user_of("x" * (DISTINGUISHED_NAME_LENGTH_MAX + 1)) is None


@pytest.mark.parametrize(
    "certificate", ["", "30", "3005", "300330013000", "3084ffffffff", "308930", "30073005a0030201023000"]
)
def test_malformed_certificates_are_refused(certificate: str) -> None:
    with pytest.raises(WireError):
        subject_of(bytes.fromhex(certificate))
