"""
Recorded exchanges of Apache Kafka 4.4.0, played again over sockets: the same bytes, and closed or silent when Kafka is.

`tests/security/sasl/test_recorded.py` plays all of them without sockets. Those with random parts of the server, with access
tokens and with delegation tokens are left out here.
"""

import asyncio
from contextlib import suppress

from kohort.server.node import Node
from tests.security.sasl.recorded import PLAIN_USERS, Row, recording, scram_messages
from tests.security.sasl.test_recorded import CHANGES, DIFFERENCES, TIMES, _is_list_of_apis, _turns, _whole
from tests.server.clients import Connect, play_at

LISTENERS = ("SASL_PLAINTEXT", "REAUTH", "PLAINTEXT")
SILENT_S = 0.02
_USERS = " ".join(f'user_{name}="{password}"' for name, password in PLAIN_USERS.items())
_JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};"
CONFIGS = {
    "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,REAUTH:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
    "listener.name.reauth.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.reauth.plain.sasl.jaas.config": _JAAS,
    "listener.name.reauth.connections.max.reauth.ms": "3000",
    "connection.failed.authentication.delay.ms": "1",
}


def played() -> list[tuple[str, Row]]:
    """The exchanges without random parts of the server, and without what other rooms have."""
    left_out = {*TIMES, *CHANGES, *DIFFERENCES}
    return [
        (name, row)
        for name, row in recording()[1].items()
        if row["listener"] in LISTENERS
        and row["id"] not in left_out
        and "oken" not in row["id"]
        and "DescribeUserScramCredentials" not in str(row["steps"])
        and not list(scram_messages(row))
    ]


async def differences(row: Row, connect: Connect, node: Node) -> list[str]:
    client = await connect(node.bound[1][LISTENERS.index(row["listener"])])
    for number, (sent, answers) in enumerate(_turns(row["steps"])):
        with suppress(ConnectionError):
            client.writer.write(_whole(sent))
        expected = b"".join(bytes.fromhex(each.get("hex", "")) for each in answers)
        is_closed = any("closed" in each or each.get("delayed") for each in answers)
        seen = b""
        if _is_list_of_apis(sent, answers):
            frame = await client.frame()
            if frame[4:6] != expected[8:10]:
                return [f"turn {number}: {frame[:10].hex()} instead of {expected[4:14].hex()}"]
            expected = b""
        elif expected:
            with suppress(asyncio.IncompleteReadError):
                seen = await client.reader.readexactly(len(expected))
        if seen != expected:
            return [f"turn {number}: {seen.hex()} instead of {expected.hex()}"]
        if is_closed:
            with suppress(ConnectionError):
                if rest := await client.reader.read():
                    return [f"turn {number}: {rest.hex()} instead of the end"]
            return []
        with suppress(TimeoutError):
            # Kafka was watched for seconds where it did not answer at all.
            if expected:
                continue
            async with asyncio.timeout(SILENT_S):
                return [f"turn {number}: {(await client.reader.read(1)).hex() or 'closed'} instead of nothing"]
    return []


def test_recorded_exchanges_over_sockets() -> None:
    rows = played()
    assert len(rows) > 60
    found: dict[str, list[str]] = {}

    async def story(node: Node, connect: Connect) -> None:
        for name, row in rows:
            if differs := await differences(row, connect, node):
                found[name] = differs

    play_at(story, configs=CONFIGS)
    assert found == {}
