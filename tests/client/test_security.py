"""TLS and SASL: against Apache Kafka with a certificate of our own, SCRAM as its standard tells it, and files that say how."""

import base64
import hashlib
import hmac
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from kohort.cli.main import run
from kohort.client.addresses import Address
from kohort.client.cluster import Client
from kohort.client.connection import Connection
from kohort.client.sasl import scram
from kohort.client.security import PLAINTEXT, Security, read_properties
from kohort.model.errors import ConfigError, WireError
from kohort.pipeline.sources import live
from kohort.pipeline.sources.live import FetchTask
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.ranges import read_task
from kohort.pipeline.sources.topic_ids import topic_ids
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.ports import free_ports
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.client.test_oauth import jwt
from tests.clients.waiting import wait_until
from tests.conftest import LONG

PASSWORD = 'with "quotes", and = signs'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
JAAS_PASSWORD = PASSWORD.replace('"', '\\"')
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Secured:
    """A broker with a listener for each protocol, and the certificate that it shows."""

    certificate: Path
    own: Path
    ports: dict[str, int]

    def path(self, protocol: str) -> str:
        return f"kafka://127.0.0.1:{self.ports[protocol]}"


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and a file that holds its key, too."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    own = directory / "own.pem"
    own.write_text(key.read_text() + certificate.read_text())
    return certificate, own


def properties(secured: Secured, plain_port: int, controller: str) -> dict[str, str]:
    listeners = {"PLAINTEXT": plain_port, **secured.ports}
    told = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
    return {
        "listeners": f"{told},{controller}",
        "advertised.listeners": told,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(secured.own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(("PLAIN", "OAUTHBEARER", *MECHANISMS)),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_reader="plain";',
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": "1500",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="broker";',
        "delegation.token.secret.key": "key of tokens",
        **{f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config": f"{SCRAM};" for name in MECHANISMS},
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from confluent_kafka import admin

    directory = tmp_path_factory.mktemp("secured")
    try:
        node = KafkaNode(directory / "kafka")
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    found = Secured(*certificate(directory), dict(zip(("SSL", "SASL_SSL"), free_ports(2), strict=True)))
    file = directory / "kafka" / "server.properties"
    told = dict(line.split("=", 1) for line in file.read_text().splitlines())
    more = properties(found, node.port, told["listeners"].rpartition(",")[2])
    file.write_text("".join(f"{name}={text}\n" for name, text in {**told, **more}.items()))
    with node:
        client = admin.AdminClient({"bootstrap.servers": node.bootstrap})
        kinds = (admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512)
        for kind in kinds:
            credential = admin.ScramCredentialInfo(kind, 4096)
            user = admin.UserScramCredentialUpsertion("reader", credential, PASSWORD.encode())
            for done in client.alter_user_scram_credentials([user]).values():
                done.result(30)
        for done in client.create_topics([admin.NewTopic("orders", 2, 1)]).values():
            done.result(30)
        yield found


def topics(secured: Secured, **options: str) -> list[tuple[str, int]]:
    protocol = options["security.protocol"]
    given = {f"kafka.{name.replace('_', '.')}": text for name, text in options.items()}
    parsed = SourceOptions.parse({"path": secured.path(protocol), **given})
    logs = live.list_logs(parsed.path, topics={"orders"}, security=parsed.security)
    return [
        (log.topic, log.partition)
        for log in logs
        for _ in [list(read_task(parsed, FetchTask(0, log, parsed.security)))]
    ]


def sasl(secured: Secured, mechanism: str, jaas: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(secured.certificate),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }


BOTH = [("orders", 0), ("orders", 1)]


@pytest.mark.java
@pytest.mark.maven
def test_every_way_in(secured: Secured) -> None:
    truststore = {"ssl.truststore.location": str(secured.certificate)}
    plain = f'{PLAIN} username="reader" password="plain";'
    scram = f'{SCRAM} username="reader" password="{JAAS_PASSWORD}";'
    assert topics(secured, **sasl(secured, "PLAIN", plain)) == BOTH
    for mechanism in MECHANISMS:
        assert topics(secured, **sasl(secured, mechanism, scram)) == BOTH
    mutual = {"security.protocol": "SSL", **truststore, "ssl.keystore.location": str(secured.own)}
    assert topics(secured, **mutual) == BOTH
    key, chain = secured.own.read_text().split("-----BEGIN CERT")
    texts = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": secured.certificate.read_text().replace("\n", "\\n"),
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": f"-----BEGIN CERT{chain}",
    }
    assert topics(secured, **texts) == BOTH
    said = {"sasl.username": "reader", "sasl.password": PASSWORD, "sasl.jaas.config": ""}
    assert topics(secured, **{**sasl(secured, "SCRAM-SHA-512", ""), **said}) == BOTH


@pytest.mark.java
@pytest.mark.maven
def test_tokens_of_oauth_get_in(secured: Secured) -> None:
    unsigned = sasl(secured, "OAUTHBEARER", f'{OAUTH} unsecuredLoginStringClaim_sub="reader" extension_a="b";')
    assert topics(secured, **unsigned) == BOTH
    barred = sasl(secured, "OAUTHBEARER", "") | {"sasl.oauthbearer.token": jwt("reader", -100)}
    with pytest.raises(ConfigError, match=r'refused the authentication: .*"status":"invalid_token"'):
        topics(secured, **barred)


@pytest.mark.java
@pytest.mark.maven
def test_delegation_tokens_get_in(secured: Secured) -> None:
    plain = Security.parse(sasl(secured, "PLAIN", f'{PLAIN} username="reader" password="plain";'))
    made = messages.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime_ms=60_000
    )
    asked = messages.DescribeDelegationTokenRequest(owners=None)
    with Client(secured.path("SASL_SSL").removeprefix("kafka://"), security=plain) as client:
        token = client.send(ApiKey.CREATE_DELEGATION_TOKEN, made)
        wait_until(lambda: client.send(ApiKey.DESCRIBE_DELEGATION_TOKEN, asked).tokens, what="the token")
    password = base64.b64encode(token.hmac).decode()
    jaas = f'{SCRAM} username="{token.token_id}" password="{password}" tokenauth="true";'
    for mechanism in MECHANISMS:
        assert topics(secured, **sasl(secured, mechanism, jaas)) == BOTH
        with pytest.raises(ConfigError, match="refused the authentication"):
            topics(secured, **sasl(secured, mechanism, jaas.replace("tokenauth", "other")))


@pytest.mark.java
@pytest.mark.maven
def test_a_session_that_ends_is_renewed_before(secured: Secured) -> None:
    """The listener ends sessions of PLAIN after a second and a half, and closes the connection then."""
    plain = Security.parse(sasl(secured, "PLAIN", f'{PLAIN} username="reader" password="plain";'))
    began_s = time.monotonic()
    with Connection(Address("127.0.0.1", secured.ports["SASL_SSL"]), 30, plain) as connection:
        while time.monotonic() < began_s + 1.8:
            connection.send(ApiKey.METADATA, messages.MetadataRequest(topics=()))


@pytest.mark.java
@pytest.mark.maven
def test_every_way_that_is_barred(secured: Secured, tmp_path: Path) -> None:
    wrong = f'{PLAIN} username="reader" password="wrong";'
    for mechanism in ("PLAIN", *MECHANISMS):
        with pytest.raises(ConfigError, match="refused the authentication: Authentication failed"):
            topics(secured, **sasl(secured, mechanism, wrong))
    with pytest.raises(ConfigError, match=r"no TLS with the broker at .*certificate verify failed"):
        topics(secured, **{**sasl(secured, "PLAIN", wrong), "ssl.truststore.location": str(another(tmp_path))})
    with pytest.raises(WireError, match="a listener with TLS or SASL needs options"):
        live.list_logs(secured.path("SASL_SSL"))


@pytest.mark.java
@pytest.mark.maven
def test_the_command_line_gets_in(secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    given = sasl(secured, "SCRAM-SHA-256", f'{SCRAM} username="reader" password="{JAAS_PASSWORD}";')
    file.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    asked = ["topics", "list", "--json", "--no-internal", "--bootstrap", f"127.0.0.1:{secured.ports['SASL_SSL']}"]
    assert run([*asked, "--command-config", str(file)]) == 0
    assert [topic["topic"] for topic in json.loads(capsys.readouterr().out)] == ["orders"]
    assert run(asked) == 2
    assert "--command-config FILE" in capsys.readouterr().err


@pytest.mark.java
@pytest.mark.maven
def test_the_pipeline_gets_in(secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, source = tmp_path / "client.properties", secured.path("SASL_SSL")
    given = sasl(secured, "PLAIN", f'{PLAIN} username="reader" password="plain";')
    file.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    assert "orders" in topic_ids(source, Security.parse(given)).values()
    assert run(["pipeline", "offsets", source]) == 2
    assert "a listener with TLS or SASL needs options" in capfd.readouterr().err
    asked = ["pipeline", "offsets", source, "--json", "--command-config", str(file)]
    assert run(asked) == 2
    assert f"{source} has no topic __consumer_offsets yet" in capfd.readouterr().err
    if LONG:
        client = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(secured.certificate), "group.id": "readers"}
        client |= {"sasl.mechanism": "PLAIN", "sasl.username": "reader", "sasl.password": "plain"}
        consumer = Consumer(client | {"bootstrap.servers": source.removeprefix("kafka://")})
        wait_until(lambda: _has_committed(consumer, TopicPartition("orders", 1, 0)), what="a coordinator")
        consumer.close()
        assert run(asked) == 0
        (row,) = json.loads(capfd.readouterr().out)
        assert (row["group"], row["topic"], row["partition"], row["offset"]) == ("readers", "orders", 1, 0)


def _has_committed(consumer: Consumer, place: TopicPartition) -> bool:
    """The first commit makes the topic of the coordinators, whose partitions have to be loaded first."""
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException:
        return False
    return True


def another(directory: Path) -> Path:
    """A certificate that nobody shows."""
    return certificate(directory)[0]


class Broker:
    """The broker's part of SCRAM-SHA-256, by RFC 5802, which knows one password."""

    def __init__(self, password: str, *, salt: bytes = b"salt", iterations: int = 4096, is_false: bool = False) -> None:
        self.salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        self.first = f"s={base64.b64encode(salt).decode()},i={iterations}"
        self.is_false = is_false
        self.told: list[str] = []

    def exchange(self, message: bytes) -> bytes:
        text = message.decode()
        if not self.told:
            self.told += [text.removeprefix("n,,"), f"r={text.rpartition('r=')[2]}more,{self.first}"]
            return self.told[-1].encode()
        final, _, _ = text.rpartition(",p=")
        key = hmac.digest(self.salted, b"Server Key", "sha256")
        signature = hmac.digest(key, ",".join([*self.told, final]).encode(), "sha256")
        return b"v=" + base64.b64encode(bytes(32) if self.is_false else signature)


def test_the_broker_has_to_know_the_password() -> None:
    scram("SCRAM-SHA-256", "user", "pencil", Broker("pencil").exchange, "nonce")
    with pytest.raises(ConfigError, match="cannot prove that it knows the password"):
        scram("SCRAM-SHA-256", "user", "pencil", Broker("pencil", is_false=True).exchange, "nonce")


def test_the_example_of_the_standard() -> None:
    """RFC 7677, section 3."""
    nonce, more = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answers = [
        f"r={nonce}{more},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]
    sent: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        sent.append(message)
        return answers[len(sent) - 1]

    scram("SCRAM-SHA-256", "user", "pencil", exchange, nonce)
    assert sent == [
        f"n,,n=user,r={nonce}".encode(),
        f"c=biws,r={nonce}{more},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode(),
    ]


# fmt: off
REFUSED = {
    "a protocol":    ({"security.protocol": "TLS"},                                   "security.protocol must be one of"),
    "no mechanism":  ({"security.protocol": "SASL_SSL"},                              "must be one of .* not empty"),
    "kerberos":      ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},  "not GSSAPI"),
    "nobody":        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},   "SASL needs sasl.username and"),
    "a key store":   ({"ssl.truststore.type": "JKS"},                                 "only PEM files"),
    "no text":       ({"ssl.truststore.certificates": "secret"},                      "certificates cannot be used: no cert"),
    "half a pair":   ({"ssl.keystore.key": "secret"},                                 "need each other"),
    "no key":        ({"ssl.keystore.key": "secret", "ssl.keystore.certificate.chain": "x"}, "key cannot be used: 0 private"),
    "two stores":    ({"ssl.truststore.certificates": "x", "ssl.truststore.location": "y"},  "give either"),
}
# fmt: on


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_a_sentence(name: str) -> None:
    options, text = REFUSED[name]
    with pytest.raises(ConfigError, match=text) as refused:
        Security.parse(options)
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ConfigError, match=r"empty.pem cannot be used for TLS"):
        Security(is_encrypted=True, truststore=str(tmp_path / "empty.pem")).ssl_context()


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(Security(password="secret", key_password="secret"))


FIRST_ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
"""Of the example of RFC 7677."""

# fmt: off
IMPOSTORS = {
    "other nonce":        [b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"],
    "too many rounds":    [FIRST_ANSWER.replace(b"4096", b"9999999999")],
    "no rounds":          [FIRST_ANSWER.replace(b"i=4096", b"i=x")],
    "too few rounds":     [FIRST_ANSWER.replace(b"4096", b"4095")],
    "no text":            [b"\xff"],
    "no base64":          [FIRST_ANSWER.replace(b"W22Z", b"W22*")],
    "no last text":       [FIRST_ANSWER, b"\xff"],
    "no last base64":     [FIRST_ANSWER, b"v=6r*="],
    "no salt":            [b"r=rOprNGfwEbeRWgbNEkqOx,i=4096"],
    "does not know it":   [FIRST_ANSWER, b"v=AAAA"],
    "says nothing":       [FIRST_ANSWER, b""],
}
# fmt: on


@pytest.mark.parametrize("impostor", IMPOSTORS)
def test_a_broker_that_does_not_know_the_password_is_not_believed(impostor: str) -> None:
    answers = iter(IMPOSTORS[impostor])
    with pytest.raises(ConfigError, match=r"the broker (does not follow|cannot prove)"):
        scram("SCRAM-SHA-256", "user", "pencil", lambda _: next(answers), "rOprNGfwEbeRWgbNEkqO")


def test_a_file_of_kafkas_tools(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# how to connect\n! so\n\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nclient.dns.lookup=x\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n  username="u" \\\n'
        '  password="p=\\"q";\n'
    )
    found = Security.parse(read_properties(file))
    assert (found.is_encrypted, found.mechanism, found.username, found.password) == (False, "PLAIN", "u", 'p="q')


def test_nothing_said_is_plain_text() -> None:
    assert Security.parse({}) == PLAINTEXT


@pytest.mark.parametrize("text", ["security.protocol", "=SSL", "\\"])
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# one\n{text}\n")
    with pytest.raises(ConfigError, match="line 2"):
        read_properties(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        read_properties(tmp_path / "nowhere")
