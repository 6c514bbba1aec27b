"""The port for metrics: the text format, the little HTTP, and that the numbers follow what happens."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.configs.definitions import BrokerConfig
from kohort.cli.serve import parser
from kohort.server.exposition import Family, Sample, counter, labelled, render
from kohort.server.node import Node
from kohort.server.scrape import REQUEST_BYTES_MAX, Scrape
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.test_connection import Client, commit, with_topic

SECONDS_MAX = 120.0
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

EXPOSED = """\
# HELP commits_total Offsets \\\\ that\\nwere accepted.
# TYPE commits_total counter
commits_total 3
# HELP groups Groups.
# TYPE groups gauge
groups{state="Empty"} 1
groups{state="a \\"b\\" \\\\ c\\n"} 0.5
# HELP took_ms Time.
# TYPE took_ms histogram
took_ms_bucket{le="1"} 2
took_ms_bucket{le="+Inf"} 2
took_ms_sum 1
took_ms_count 2
"""


def test_the_text_format() -> None:
    buckets = [Sample(2, {"le": "1"}, "_bucket"), Sample(2, {"le": "+Inf"}, "_bucket")]
    families = [
        counter("commits_total", "Offsets \\ that\nwere accepted.", 3),
        labelled("groups", "gauge", "Groups.", "state", [("Empty", 1), ('a "b" \\ c\n', 0.5)]),
        Family("took_ms", "histogram", "Time.", [*buckets, Sample(1, suffix="_sum"), Sample(2, suffix="_count")]),
    ]
    assert render(families) == EXPOSED


def test_one_name_is_one_metric() -> None:
    with pytest.raises(ValueError, match="commits_total is there twice"):
        render([counter("commits_total", "", 1)] * 2)


@given(st.text(), st.text(), st.floats(allow_nan=False))
def test_no_text_breaks_out_of_its_line(about: str, label: str, value: float) -> None:
    lines = render([labelled("metric", "gauge", about, "label", [(label, value)])]).split("\n")
    assert len(lines) == 4
    assert re.fullmatch(r'metric\{label="(?:[^"\\\n]|\\["\\n])*"\} \S+', lines[2])


# fmt: off
ANSWERS = {
    GET:                                                   (200, b"metric 1\n"),
    b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n":             (200, b"metric 1\n"),
    b"HEAD /metrics HTTP/1.1\r\n\r\n":                     (200, b""),
    b"GET / HTTP/1.1\r\n\r\n":                             (404, b"There is only /metrics here.\n"),
    b"POST /metrics HTTP/1.1\r\n\r\n":                     (405, b"Only GET is answered.\n"),
    b"GET /metrics\r\n\r\n":                               (400, b"This is no HTTP request.\n"),
    b"\x00\x00\x00\x0a\x00\x12\r\n\r\n":                   (400, b"This is no HTTP request.\n"),
    b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX: (400, b"The request is too long.\n"),
}
# fmt: on


@pytest.mark.parametrize("request_", ANSWERS, ids=lambda request: request[:20].decode("latin-1"))
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_answers(request_: bytes, step: int) -> None:
    assert asyncio.run(_scraped(request_, step, lambda: "metric 1\n")) == ANSWERS[request_]


def test_a_number_that_cannot_be_had_costs_the_scrape(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise RuntimeError("no such number")

    status, body = asyncio.run(_scraped(GET, len(GET), fail))
    assert (status, body) == (500, b"The metrics cannot be read; the broker's log says why.\n")
    assert "no such number" in caplog.text


async def _scraped(request: bytes, step: int, text: Callable[[], str]) -> tuple[int, bytes]:
    server = await asyncio.get_running_loop().create_server(lambda: Scrape(text), "127.0.0.1", 0)
    async with server, asyncio.timeout(SECONDS_MAX):
        return await _ask(server.sockets[0].getsockname()[1], request, step)


async def _ask(port: int, request: bytes = GET, step: int = 1 << 20) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for start in range(0, len(request), step):
        writer.write(request[start : start + step])
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    length = int(re.search(rb"Content-Length: (\d+)", head)[1])  # type: ignore[index]
    assert length == len(body) or request.startswith(b"HEAD")
    return int(head.split()[1]), body


def played(story: Callable[[Node, Client], Awaitable[None]], metrics_port: int | None = 0) -> None:
    async def run() -> None:
        config = BrokerConfig({"group.initial.rebalance.delay.ms": "0"})
        node = Node(Settings(port=0, metrics_port=metrics_port, config=config), asyncio.get_running_loop())
        host, port = await node.start()
        client = Client(*await asyncio.open_connection(host, port))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await story(node, client)
        finally:
            await node.stop()
            client.writer.close()

    asyncio.run(run())


async def numbers(node: Node) -> dict[str, float]:
    assert node.metrics_port is not None
    status, body = await _ask(node.metrics_port)
    assert status == 200
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_node_shows_what_it_does() -> None:
    async def story(node: Node, client: Client) -> None:
        await with_topic(client)
        before = await numbers(node)
        for offset in range(3):
            await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(offset))
        await client.ask(ApiKey.HEARTBEAT, 4, m.HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody"))
        after = await numbers(node)
        changed = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        assert changed['kohort_requests_total{api="OffsetCommit"}'] == 3
        assert changed['kohort_requests_total{api="Heartbeat"}'] == 1
        assert changed["kohort_group_coordinator_offset_commits_total"] == 3
        assert changed["kohort_group_coordinator_offsets"] == 1
        assert changed['kohort_group_coordinator_classic_groups{state="Empty"}'] == 1
        assert after["kohort_connections"] == after["kohort_connections_accepted_total"] == 1
        assert after['kohort_group_coordinator_partitions{state="active"}'] == 50
        (ended,) = [name for name in changed if name.startswith("kohort_log_end_offset{")]
        assert changed[ended] == 3
        label = ended.removeprefix("kohort_log_end_offset")
        assert label.startswith('{topic="__consumer_offsets",partition="')
        assert changed[f"kohort_log_size_bytes{label}"] > 0
        assert after[f"kohort_log_segments{label}"] == 1
        assert after["kohort_log_offline_partitions"] == 0
        assert after["kohort_uptime_seconds"] > 0
        assert after['kohort_group_coordinator_batch_flush_time_ms_bucket{le="+Inf"}'] >= 1

    played(story)


def test_by_default_there_is_no_such_port() -> None:
    async def story(node: Node, _: Client) -> None:
        await asyncio.sleep(0)
        assert node.metrics_port is None

    played(story, metrics_port=None)
    assert parser().parse_args(["--memory"]).metrics_port is None
