"""What one request to the control port may cost: its row in the table of listeners."""

import asyncio
from functools import partial

import pytest

from kohort.broker.apis.api_table import LISTENER_TABLE, Listener
from kohort.model.limits import CONTROL_BODY_BYTES_MAX
from tests.control.controlled import Stage, play
from tests.server.requests.test_listener_costs import assert_within

SIZE = CONTROL_BODY_BYTES_MAX - 100


def listed(head: bytes, element: bytes, tail: bytes) -> bytes:
    return head + b",".join([element] * ((SIZE - len(head) - len(tail)) // (len(element) + 1))) + tail


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/faults", listed(b'{"observe": true, "api": [', b'"Heartbeat"', b"]}")),
        (b"/faults", listed(b'{"observe": true, "api": [', b'"x"', b"]}")),
        (b"/faults", listed(b'{"api": "DescribeGroups", "answer": {"groups": [', b"{}", b"]}}")),
        (b"/faults", listed(b'{"api": "SaslHandshake", "answer": {"mechanisms": [', b'""', b"]}}")),
        (b"/faults", b'{"observe": true, "topic": "' + b"x" * (SIZE - 100) + b'"}'),
        (b"/holds", listed(b'{"api": [', b"1", b"]}")),
        (b"/topics/t/records", listed(b'{"records": [', b"{}", b"]}")),
        (b"/topics/t/records", listed(b'{"records": [{"headers": [', b'{"key":""}', b"]}]}")),
    ],
)
def test_the_worst_requests(path: bytes, body: bytes) -> None:
    async def story(stage: Stage) -> None:
        head = (
            b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        )
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        connect = partial(asyncio.open_connection, "127.0.0.1", stage.control.port)
        answer = await assert_within(LISTENER_TABLE[Listener.TESTING_KIT], connect, request)
        assert answer.startswith(b"HTTP/1.1 ")

    play(story)
