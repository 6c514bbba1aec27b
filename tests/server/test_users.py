"""Users of the options, of a file and of the environment; certificates that are made at the start."""

import argparse
import logging
import ssl
import stat
from pathlib import Path

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.cli.serve import parser
from kohort.cli.serve_security import default_configs, default_protocol, make_certificates
from kohort.model.errors import ConfigError
from kohort.security.protocols import SecurityProtocol
from kohort.server.listeners.made_certificates import AUTHORITY, CLIENT, MadeCertificates
from kohort.server.listeners.tls_stores import load_stores
from kohort.server.settings import Passwords, Settings
from kohort.server.users import VARIABLE, read_users


def test_users_come_from_a_file_the_environment_and_options(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "users"
    file.write_text("# for tests\n\nalice:a:b \nbob:of-the-file\r\ncarol:of-the-file\n")
    file.chmod(0o600)
    environment = {VARIABLE: "bob:of-the-environment\ncarol:of-the-environment"}
    users = read_users(["carol:of-the-option"], file, environment)
    assert users == {"alice": "a:b ", "bob": "of-the-environment", "carol": "of-the-option"}
    (line,) = caplog.messages
    assert line.startswith("users.on_command_line count=1 hint='everyone on this machine sees the secrets")
    for shown in (repr(users), repr(Settings(users=users, config=BrokerConfig())), caplog.text):
        assert "of-the" not in shown
    caplog.clear()
    assert read_users((), None, {}) == {}
    assert caplog.text == ""


def test_a_users_file_that_others_may_use_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "users"
    file.write_text("alice:a")
    file.chmod(stat.S_IRUSR | stat.S_IROTH)
    with caplog.at_level(logging.WARNING):
        assert read_users((), file, {}) == {"alice": "a"}
    assert "users.file_of_others" in caplog.text


@pytest.mark.parametrize("text", ["alice", ":secret-text", "alice:", "a\0b:secret-text"])
def test_what_is_no_user_is_refused_without_its_secret(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"bob:b\n{text}")
    for options, path, sentence in (
        (["bob:b", text], None, "--user number 2 is no user: write NAME:SECRET"),
        ([], file, f"line 2 of {file} is no user"),
    ):
        with pytest.raises(ConfigError, match=sentence) as raised:
            read_users(options, path, {})
        assert "secret-text" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot read the users file"):
        read_users((), tmp_path / "absent", {})
    file.write_bytes(b"\xff:\xff")
    with pytest.raises(ConfigError, match="is not a text in UTF-8"):
        read_users((), file, {})


def options(*words: str) -> argparse.Namespace:
    return parser().parse_args(["--memory", *words])


@pytest.mark.parametrize(
    ("users", "is_encrypted", "protocol"),
    [
        (Passwords(), False, SecurityProtocol.PLAINTEXT),
        (Passwords(), True, SecurityProtocol.SSL),
        (Passwords(a="b"), False, SecurityProtocol.SASL_PLAINTEXT),
        (Passwords(a="b"), True, SecurityProtocol.SASL_SSL),
    ],
)
def test_options_decide_the_protocol_of_the_only_listener(
    users: Passwords, is_encrypted: bool, protocol: SecurityProtocol
) -> None:
    assert default_protocol(users, is_encrypted=is_encrypted) is protocol
    mechanisms = BrokerConfig.load(defaults=default_configs(users, None)).get_list("sasl.enabled.mechanisms")
    assert mechanisms == (("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") if users else ("GSSAPI",))


def test_certificates_are_made_for_the_names_of_the_broker_and_removed(tmp_path: Path) -> None:
    config = BrokerConfig(
        {"listeners": "SSL://10.0.0.7:1,A://[2001:db8::1]:2,B://:3", "advertised.listeners": "SSL://b.example:1"}
    )
    made = make_certificates(options("--tls", "--host", "0.0.0.0", "--advertised", "c.example:9"), config)
    assert made is not None
    try:
        assert made.directory.stat().st_mode & 0o077 == 0
        stores = load_stores(ListenerConfig(BrokerConfig(made.configs()), "SSL", SecurityProtocol.SSL))
        assert stores.subject.startswith("CN=kohort,")
        named = b" ".join(stores.alternative_names)
        for name in (b"localhost", b"b.example", b"c.example", b"\x7f\0\0\1", b"\x0a\0\0\7", b"\x20\1\x0d\xb8"):
            assert name in named
        context = ssl.create_default_context(cafile=made.directory / AUTHORITY)
        context.load_cert_chain(made.directory / CLIENT)
    finally:
        made.remove()
    assert not made.directory.exists()
    assert make_certificates(options(), config) is None
    with pytest.raises(
        ConfigError, match=r"--tls makes the stores of the broker; leave it out, or listener\.name\.a\.ssl\.key"
    ):
        make_certificates(options("--tls"), BrokerConfig({"listener.name.a.ssl.keystore.key": "k"}))
    with pytest.raises(ConfigError, match="not a name for a certificate: '-'"):
        MadeCertificates(["-"])
