"""The grammar of `sasl.jaas.config`."""

import pytest

from kohort.model.errors import ConfigError
from kohort.security.jaas import PLAIN_MODULE, parse_jaas

M = PLAIN_MODULE

# fmt: off
TEXTS: list[tuple[str, dict[str, str]]] = [
    (f"{M} required;", {}),
    (f'{M} REQUIRED user_alice="secret";', {"user_alice": "secret"}),
    (f"{M} Optional\n\tuser_alice = 'it\"s'\n;", {"user_alice": 'it"s'}),
    (f'{M} sufficient a="1" user_b-c_d$=plain-1.x user_ä="ö";', {"a": "1", "user_b-c_d$": "plain-1.x", "user_ä": "ö"}),
    (rf'{M} requisite user_a="\"\\\101\n\z\7";', {"user_a": '"\\A\nz\a'}),
    (f'{M} required user_a="one" user_a="two";', {"user_a": "two"}),
    (f'{M} required "user_a"="; required";', {"user_a": "; required"}),
    (f'/* one\n two */ {M} // three\n required / four\n user_a="x";', {"user_a": "x"}),
    (f'{M} required user_a="ends with the line\n user_b="x";', {"user_a": "ends with the line", "user_b": "x"}),
    (f'{M} required user_="";', {"user_": ""}),
]
INVALID = [
    ("", "JAAS config property contains 0 login modules, should be 1 module"),
    (" // nothing", "JAAS config property contains 0 login modules, should be 1 module"),
    (f"{M} required; {M} required;", "JAAS config property contains 2 login modules, should be 1 module"),
    (M, "Login module control flag not specified in JAAS config"),
    (f"{M} needed;", "Invalid login module control flag in JAAS config"),
    (f'{M} user_a="s3cret";', "Invalid login module control flag in JAAS config"),
    ("; required;", "Login module not specified in JAAS config"),
    (f'{M} required user_a="s3cret"', "JAAS config entry not terminated by semi-colon"),
    (f"{M} required", "JAAS config entry not terminated by semi-colon"),
    (f"{M} required user_a;", "Value not specified for key 'user_a' in JAAS config"),
    (f"{M} required user_a=;", "Value not specified for key 'user_a' in JAAS config"),
    (f"{M} required user_a=1s3cret;", "Value not specified for key 'user_a' in JAAS config"),
    (f"{M} required user_a=-s3cret;", "Value not specified for key 'user_a' in JAAS config"),
    (f"{M} required user_a:x;", "Value not specified for key 'user_a' in JAAS config"),
    (f"{M} required =x;", "Value not specified for key '' in JAAS config"),
]
# fmt: on


@pytest.mark.parametrize(("text", "options"), TEXTS)
def test_options(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == (PLAIN_MODULE, options)


@pytest.mark.parametrize(("text", "message"), INVALID)
def test_invalid_texts_are_refused_and_not_shown(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_jaas(text)
    assert str(raised.value) == f"sasl.jaas.config: {message}"


def test_users() -> None:
    module = parse_jaas(f'{M} required username="broker" password="own" user_alice="a" user_="b" user="c";')
    assert module.users == {"alice": "a", "": "b"}
    assert "own" not in repr(module)
