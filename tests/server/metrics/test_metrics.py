"""The port for metrics: HTTP, names, and numbers that follow the events."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kohort import scrape
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.telemetry.otlp import DataPoint
from kohort.cli.serve import parser
from kohort.model.ids import uuid_text
from kohort.scrape import REQUEST_BYTES_MAX, Family, ScrapeListener, text_of
from kohort.security.http_access import HttpAccess
from kohort.server.metrics.families import late_transactions, log_families, producer_families
from kohort.server.metrics.figures import by, figure
from kohort.server.node import Node
from kohort.server.settings import Secret, Settings
from kohort.storage.log import FlushMetrics
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.broker.records.test_read_committed import Readers
from tests.server.clients import Client, commit, with_topic

SECONDS_MAX = 120.0
HOST = "127.0.0.1"
READY = b"GET /ready HTTP/1.1\r\n\r\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

BODY = b"# HELP metric About.\n# TYPE metric gauge\nmetric 1.0\n"
# fmt: off
ANSWERS = {
    GET:                                                   (200, BODY),
    b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n":             (200, BODY),
    b"HEAD /metrics HTTP/1.1\r\n\r\n":                     (200, b""),
    b"GET / HTTP/1.1\r\n\r\n":                             (404, b"Only /metrics, /health and /ready are served.\n"),
    b"POST /metrics HTTP/1.1\r\n\r\n":                     (405, b"Only GET is answered.\n"),
    b"GET /metrics\r\n\r\n":                               (400, b"This is not an HTTP request.\n"),
    b"\x00\x00\x00\x0a\x00\x12\r\n\r\n":                   (400, b"This is not an HTTP request.\n"),
    b"GET /metrics HTTP/1.1\r\nX: ".ljust(REQUEST_BYTES_MAX + 1, b"x"): (400, b"The request is too long.\n"),
}
# fmt: on


@pytest.mark.parametrize("request_", ANSWERS, ids=lambda request: request[:20].decode("latin-1"))
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_answers(request_: bytes, step: int) -> None:
    assert asyncio.run(_scraped(request_, step, lambda: list(figure("metric", "", "About.", 1)))) == ANSWERS[request_]


# fmt: off
PROBES = {  # path, what the node finds: status and body
    (b"/health", ""):                     (200, b'{"status": "ok"}\n'),
    (b"/ready",  ""):                     (200, b'{"status": "ready"}\n'),
    (b"/ready",  "The disk is full."):    (503, b'{"status": "not ready", "reasons": ["The disk is full."]}\n'),
    (b"/health", "The disk is full."):    (200, b'{"status": "ok"}\n'),
}
# fmt: on


@pytest.mark.parametrize(("path", "reason"), PROBES)
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_probes(path: bytes, reason: str, method: bytes) -> None:
    async def probed() -> tuple[int, bytes]:
        server = await ScrapeListener(not_ready=lambda: [reason] if reason else []).start(host=HOST, port=0)
        async with server, asyncio.timeout(SECONDS_MAX):
            return await _ask(server.sockets[0].getsockname()[1], method + b" " + path + b" HTTP/1.1\r\n\r\n")

    status, body = PROBES[path, reason]
    assert asyncio.run(probed()) == (status, b"" if method == b"HEAD" else body)


def test_a_node_is_ready_when_its_coordinators_are_loaded_and_its_disk_can_be_written(tmp_path: Path) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        settings = Settings(port=0, metrics_port=0, data_dir=tmp_path / "data", config=BrokerConfig({}))
        first = Node(settings, loop)
        assert first.not_ready() == ["The broker is starting."]
        host, port = await first.start()
        client = Client(*await asyncio.open_connection(host, port))
        await with_topic(client)
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(1))
        assert first.metrics_port is not None
        assert await _ask(first.metrics_port, READY) == (200, b'{"status": "ready"}\n')
        stopping = loop.create_task(first.stop())
        while not first.not_ready():
            await asyncio.sleep(0)
        assert first.not_ready() == ["The broker is stopping."]
        await stopping
        client.writer.close()
        second = Node(settings, loop)
        # A partition that is not empty is read in later turns.
        second._coordinators.load()
        assert second.not_ready() == ["The broker is starting.", "1 partitions of coordinators are being loaded."]
        await second.start()
        while second.not_ready():
            await asyncio.sleep(0)
        (tmp_path / "data").rename(tmp_path / "gone")
        assert second.not_ready() == ["The data directory cannot be used: No such file or directory."]
        (tmp_path / "gone").rename(tmp_path / "data")
        await second.stop()

    asyncio.run(story())


def test_a_number_that_cannot_be_had_costs_the_scrape(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Iterable[Metric]:
        raise RuntimeError("no such number")

    status, body = asyncio.run(_scraped(GET, len(GET), fail))
    assert (status, body) == (500, b"The metrics cannot be computed; the log has the reason.\n")
    assert "no such number" in caplog.text


def test_the_text_is_that_of_the_library() -> None:
    async def story(node: Node, client: Client) -> None:
        await with_topic(client)
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(1))
        families = [_whole(family) for family in node.metrics()]
        texts = by("text", [('a"b\\c', 1), ("é", 2e9)])
        families += map(_whole, figure("texts", "", "A \\ and a \n newline.", *texts))

        class Collected(Collector):
            def collect(self) -> Iterable[Metric]:
                return families

        assert b"".join(text_of(families)) == generate_latest(Collected())
        assert len(families) > 150

    played(story)


def _whole(family: Family) -> Metric:
    found = Metric(family.name, family.documentation, family.type)
    found.samples = list(family.samples)
    return found


def test_no_name_of_a_client_moves_the_cursor_of_who_looks_at_the_page() -> None:
    families = figure("lag", "", "About.", *by("group", [("a\x1b[2J\n\x9b\u2028", 1)]))
    text = b"".join(text_of(families)).decode()
    assert text.splitlines()[2:] == [r'lag{group="a\\x1b[2J\\n\\x9b\\u2028"} 1.0']


class Slow:
    """A family of many samples, each of which takes a tenth of a millisecond."""

    name, type, documentation = "slow", "gauge", "About."

    def __init__(self, count: int) -> None:
        self.count = count
        self.made = 0

    @property
    def samples(self) -> Iterator[Sample]:
        self.made += 1
        for number in range(self.count):
            until = time.perf_counter() + 0.0001
            while time.perf_counter() < until:
                pass
            yield Sample(self.name, {"number": str(number)}, number)


def test_the_text_is_made_in_steps_and_once_for_all_who_ask_meanwhile() -> None:
    families = Slow(2_000)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        listener = ScrapeListener(lambda: [families])
        server = await listener.start(host=HOST, port=0)
        async with server, asyncio.timeout(SECONDS_MAX):
            port = server.sockets[0].getsockname()[1]
            scrapes = [loop.create_task(_ask(port)) for _ in range(20)]
            turns = 0
            while not all(scrape.done() for scrape in scrapes):
                await asyncio.sleep(0)
                turns += 1
        answers = {scrape.result() for scrape in scrapes}
        assert [(status, body.count(b"\n")) for status, body in answers] == [(200, 2_002)]
        assert families.made == 1
        # A piece of 100 lines takes 10 ms; the loop has a turn behind each.
        assert turns >= 20
        assert (listener.connections, listener.answer_bytes) == (0, 0)

    asyncio.run(story())


def test_scrapers_that_take_nothing_share_a_text_and_have_a_small_part_of_it_each() -> None:
    text = b"x" * (8 << 20)

    async def story() -> None:
        async def make(_is_gzip: bool) -> bytes:
            return text

        writers: list[asyncio.StreamWriter] = []

        class Watched(ScrapeListener):
            async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writers.append(writer)
                await super()._serve(reader, writer)

        listener = Watched(make_text=make)
        server = await listener.start(host=HOST, port=0)
        async with server, asyncio.timeout(SECONDS_MAX):
            port = server.sockets[0].getsockname()[1]
            streams = [await asyncio.open_connection(HOST, port) for _ in range(20)]
            for _, writer in streams:
                writer.write(GET)
            # With more than this a transport makes its writer wait.
            while len(writers) < 20 or min(each.transport.get_write_buffer_size() for each in writers) <= 64 * 1024:
                await asyncio.sleep(0)
            assert listener.answer_bytes == len(text)
            assert max(each.transport.get_write_buffer_size() for each in writers) < 256 * 1024
            for reader, writer in streams:
                assert len((await reader.read()).partition(b"\r\n\r\n")[2]) == len(text)
                writer.close()
        assert listener.answer_bytes == 0

    asyncio.run(story())


def test_a_client_that_says_or_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "REQUEST_SECONDS_MAX", 0.1)
    text = b"x" * (32 << 20)
    ended = []

    class Watched(ScrapeListener):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await super()._serve(reader, writer)
            ended.append(writer)

    async def story() -> None:
        async def make(_is_gzip: bool) -> bytes:
            return text

        listener = Watched(make_text=make)
        server = await listener.start(host=HOST, port=0)
        async with server, asyncio.timeout(SECONDS_MAX):
            port = server.sockets[0].getsockname()[1]
            silent, _ = await asyncio.open_connection(HOST, port)
            slow, writer = await asyncio.open_connection(HOST, port)
            writer.write(GET)
            while len(ended) < 2:
                await asyncio.sleep(0)
            assert await silent.read() == b""
            assert len(await slow.read()) < len(text)
        assert (listener.connections, listener.answer_bytes) == (0, 0)

    asyncio.run(story())


async def _scraped(request: bytes, step: int, collect: Callable[[], Iterable[Metric]]) -> tuple[int, bytes]:
    server = await ScrapeListener(collect).start(host=HOST, port=0)
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
    families = list(text_string_to_metric_families(body.decode()))
    assert len({family.name for family in families}) == len(families), "Prometheus refuses a name that comes twice"
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
        kafka = "kafka_server_group_coordinator_metrics"
        assert changed[f"{kafka}_offset_count"] == changed[f'{kafka}_classic_group_count{{state="Empty"}}'] == 1
        assert after["kohort_connections"] == after["kohort_connections_accepted_total"] == 1
        assert after['kohort_group_coordinator_partitions{state="active"}'] == 50
        (ended,) = [name for name in changed if name.startswith("kohort_log_end_offset{")]
        assert changed[ended] == 3
        label = ended.removeprefix("kohort_log_end_offset")
        assert label.endswith(',topic="__consumer_offsets"}')
        assert changed[f"kohort_log_size_bytes{label}"] > 0
        assert after[f"kohort_log_segments{label}"] == 1
        assert after["kohort_log_offline_partitions"] == 0
        assert after["kohort_uptime_seconds"] > 0
        assert after['kohort_group_coordinator_batch_flush_time_ms_bucket{le="+Inf"}'] >= 1

    played(story)


NAMES = """
    kohort_connections kohort_connections_accepted kohort_unsent_bytes kohort_log_lines_dropped
    kohort_throttled_connections kohort_telemetry_instances kohort_telemetry_pushes kohort_telemetry_refused
    kohort_telemetry_unknown_subscriptions kohort_telemetry_dropped
    kohort_group_coordinator_background_processing_time_ms
    kohort_group_coordinator_background_queue_time_ms kohort_group_coordinator_batch_flush_time_ms
    kohort_group_coordinator_batch_linger_time_ms kohort_group_coordinator_classic_groups
    kohort_group_coordinator_consumer_groups kohort_group_coordinator_consumer_members
    kohort_group_coordinator_consumer_rebalances
    kohort_group_coordinator_classic_members kohort_group_coordinator_completed_rebalances
    kohort_group_coordinator_event_processing_time_ms kohort_group_coordinator_event_purgatory_time_ms
    kohort_group_coordinator_event_queue_size kohort_group_coordinator_event_queue_time_ms kohort_group_coordinator_groups
    kohort_group_coordinator_load_time_avg_ms kohort_group_coordinator_load_time_max_ms
    kohort_group_coordinator_offset_commits kohort_group_coordinator_offset_deletions
    kohort_fetch_purgatory_delayed_operations kohort_fetch_purgatory_size
    kohort_group_coordinator_offset_expirations kohort_group_coordinator_offsets kohort_group_coordinator_partitions
    kohort_group_coordinator_records_set_aside kohort_group_coordinator_thread_idle_ratio
    kohort_log_cleaner_invalid_records kohort_log_cleaner_max_buffer_utilization_percent
    kohort_log_cleaner_max_clean_time_seconds kohort_log_cleaner_max_compaction_delay_seconds
    kohort_log_cleaner_max_dirty_percent kohort_log_cleaner_passes kohort_log_cleaner_read_bytes
    kohort_log_cleaner_recopy_percent kohort_log_cleaner_since_last_run_seconds kohort_log_cleaner_uncleanable_bytes
    kohort_log_cleaner_uncleanable_partitions kohort_log_cleaner_written_bytes kohort_log_end_offset
    kohort_log_flush_seconds kohort_log_flushes kohort_log_offline_partitions kohort_log_segments kohort_log_size_bytes
    kohort_log_last_stable_offset_lag kohort_log_partitions_with_late_transactions kohort_log_producers
    kohort_produce_invalid_offset_or_sequence kohort_transaction_verification_failures
    kohort_transaction_verification_time_ms
    kohort_log_start_offset kohort_requests kohort_uptime_seconds process_cpu_seconds process_open_fds
    process_resident_memory_bytes process_start_time_seconds
    kohort_transaction_coordinator_ids kohort_transaction_coordinator_ongoing_transactions
    kohort_transaction_coordinator_ending_transactions kohort_transaction_coordinator_markers_waiting
    kohort_transaction_coordinator_markers_retrying kohort_transaction_coordinator_commits
    kohort_transaction_coordinator_aborts kohort_transaction_coordinator_timeouts
    kohort_transaction_coordinator_fences kohort_transaction_coordinator_expired_ids
    kohort_transaction_coordinator_load_time_max_ms kohort_transaction_coordinator_partitions
"""
"""Dashboards are built on these: none may vanish. Counters show with `_total` behind."""


def test_a_node_counts_consumer_groups() -> None:
    async def story(node: Node, client: Client) -> None:
        await with_topic(client)
        # A commit of another group creates `__consumer_offsets`.
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(1))
        join = m.ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="a",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t", "none"],
            topic_partitions=[],
        )
        joined = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join)
        assert (joined.error_code, joined.member_epoch) == (0, 2)
        shown = await numbers(node)
        prefix = "kohort_group_coordinator"
        states = {
            state: shown[f'{prefix}_consumer_groups{{state="{state}"}}']
            for state in ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
        }
        assert states == {"Empty": 0, "Assigning": 0, "Reconciling": 0, "Stable": 1, "Dead": 0}
        assert shown[f'{prefix}_groups{{protocol="consumer"}}'] == shown[f"{prefix}_consumer_members"] == 1
        assert shown[f'{prefix}_groups{{protocol="classic"}}'] == 1
        assert shown[f"{prefix}_consumer_rebalances_total"] == 1
        leave = m.ConsumerGroupHeartbeatRequest(group_id="modern", member_id="a", member_epoch=-1)
        await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave)
        await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave)
        await client.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, m.ConsumerGroupHeartbeatRequest(group_id="", member_id="a")
        )
        shown = await numbers(node)
        refused = f'{prefix}_refused_heartbeats_total{{api="ConsumerGroupHeartbeat",error='
        assert (shown[f'{refused}"UNKNOWN_MEMBER_ID"}}'], shown[f'{refused}"INVALID_REQUEST"}}']) == (1, 1)
        assert shown[f"{prefix}_rebalance_timeouts_total"] == 0
        assert shown[f'{prefix}_consumer_groups{{state="Empty"}}'] == 1
        assert (shown[f"{prefix}_consumer_members"], shown[f"{prefix}_consumer_rebalances_total"]) == (0, 1)

    played(story)


def test_pushed_metrics_are_shown_in_steps() -> None:
    async def story(node: Node, _: Client) -> None:
        telemetry = node._broker.telemetry
        client = telemetry.received.begin(uuid4(), "a\x1b[2J", 0, 1 << 62)
        before = sum(family is None for family in node._metric_steps())
        for number in range(1_000):
            attributes = (("number", str(number)), ("text", '\x1b"'))
            telemetry.received.add(client, DataPoint("name.total", attributes, number, True, False))
            telemetry.received.add(client, DataPoint("size", attributes, number, False, False))
        telemetry.received.add(client, DataPoint("name_total", (), 1, False, False))
        assert telemetry.received.dropped == 1, "a gauge with the name of a counter"
        assert sum(family is None for family in node._metric_steps()) == before + 20
        shown = await numbers(node)
        labels = (
            f'client_id="a\\\\x1b[2J",client_instance_id="{uuid_text(client.instance_id)}",number="7",text="\\\\x1b\\""'
        )
        assert shown[f"kohort_client_name_total{{{labels}}}"] == shown[f"kohort_client_size{{{labels}}}"] == 7

    played(story)


def test_names_stay() -> None:
    async def story(node: Node, _: Client) -> None:
        assert node.metrics_port is not None
        _status, body = await _ask(node.metrics_port)
        shown = {family.name for family in text_string_to_metric_families(body.decode())}
        assert set(NAMES.split()) <= shown

    played(story)


def test_a_start_without_the_port_imports_no_library_for_it() -> None:
    script = """
import asyncio, sys
from kohort.broker.configs.definitions import BrokerConfig
from kohort.server.node import Node
from kohort.server.settings import Settings

async def run():
    node = Node(Settings(port=0, config=BrokerConfig({})), asyncio.get_running_loop())
    await node.start()
    await node.stop()

asyncio.run(run())
sys.exit("prometheus_client" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=SECONDS_MAX)


def test_by_default_there_is_no_such_port() -> None:
    async def story(node: Node, _: Client) -> None:
        await asyncio.sleep(0)
        assert node.metrics_port is None

    played(story, metrics_port=None)
    assert parser().parse_args(["--memory"]).metrics_port is None


HOUR_MS = 3_600_000
LATE_MS = 900_000 + 300_000


def value(families: Iterable[Family], name: str) -> float:
    """The sum of a gauge over its labels."""
    return sum(float(sample.value) for family in families if family.name == name for sample in family.samples)


@pytest.mark.parametrize(("limit", "percent"), [("-1", 0), ("100", 142), ("1000", 14), ("100000", 0)])
def test_the_size_of_a_log_in_percent_of_its_limit(limit: str, percent: int) -> None:
    harness = Harness()
    harness.create("t", retention_bytes=limit)
    harness.write("t", b"v" * 71)
    logs = [each for each in harness.store.log_metrics() if each.topic_partition.topic == "t"]
    assert [each.size_bytes for each in logs] == [142]
    assert value(log_families(logs, FlushMetrics()), "kafka_log_log_retentionsizein_percent") == percent


@pytest.mark.parametrize(("age_ms", "late"), [(LATE_MS, 0), (LATE_MS + 1, 1)])
def test_a_transaction_is_late_when_its_producer_has_been_silent_beyond_every_timeout(age_ms: int, late: int) -> None:
    """Source: Kafka ProducerStateManager.hasLateTransaction: the producer of the first open transaction counts."""
    readers = Readers()
    now_ms = readers.harness.node.clock.now_ms()
    readers.write(1, timestamp_ms=10_000 - age_ms, producer_id=7)
    readers.write(1, timestamp_ms=-HOUR_MS, producer_id=8)
    readers.write(1, timestamp_ms=-HOUR_MS)

    def shown(now_ms: int) -> tuple[float, float, float]:
        logs = list(readers.harness.store.log_metrics())
        families = list(producer_families(logs, late_transactions(logs, now_ms, 900_000)))
        return (
            value(families, "kohort_log_partitions_with_late_transactions"),
            value(families, "kohort_log_producers"),
            value(log_families(logs, FlushMetrics()), "kohort_log_last_stable_offset_lag"),
        )

    assert shown(now_ms) == (late, 2, 3)
    for producer_id in (7, 8):
        readers.end(producer_id)
    assert shown(now_ms + HOUR_MS) == (0, 2, 0)


TOKEN = "a-token-of-the-test"


@pytest.mark.parametrize(
    ("host", "token", "request_of", "status"),
    [
        ("127.0.0.1", None, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        ("127.0.0.1", None, b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 403),
        ("127.0.0.1", None, b"GET /metrics HTTP/1.1\r\nOrigin: http://localhost\r\n\r\n", 403),
        ("127.0.0.1", TOKEN, GET, 401),
        ("0.0.0.0", None, GET, 401),
        ("0.0.0.0", TOKEN, GET, 401),
        ("0.0.0.0", TOKEN, b"GET /metrics HTTP/1.1\r\nauthorization: Bearer a-token-of-the-test\r\n\r\n", 200),
        ("0.0.0.0", TOKEN, b"GET /metrics/ HTTP/1.1\r\nauthorization: Bearer a-token-of-the-test\r\n\r\n", 404),
        ("0.0.0.0", TOKEN, b"GET /metrics/.. HTTP/1.1\r\n\r\n", 404),
        ("0.0.0.0", TOKEN, b"GET /health/metrics HTTP/1.1\r\n\r\n", 404),
        ("0.0.0.0", TOKEN, b"GET /health HTTP/1.1\r\n\r\n", 200),
        ("0.0.0.0", None, b"GET /ready HTTP/1.1\r\n\r\n", 200),
    ],
)
def test_cve_2026_105949_and_metrics_of_other_machines(
    host: str, token: str | None, request_of: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics deny by default where others reach them, and paths count as a whole. Probes are for everyone."""

    async def run() -> None:
        settings = Settings(
            host=host,
            port=0,
            metrics_port=0,
            metrics_token=None if token is None else Secret(token),
            allow_anonymous=True,
            config=BrokerConfig(),
        )
        assert TOKEN not in repr(settings)
        node = Node(settings, asyncio.get_running_loop())
        await node.start()
        try:
            assert node.metrics_port is not None
            assert (await _ask(node.metrics_port, request_of))[0] == status
        finally:
            await node.stop()

    asyncio.run(run())
    assert ("metrics.denied" in caplog.text) is (host == "0.0.0.0" and token is None)
    assert TOKEN not in caplog.text


def test_reasons_are_for_those_who_may_have_metrics() -> None:
    async def run() -> tuple[int, bytes]:
        listener = ScrapeListener(
            not_ready=lambda: ["The disk is full."], refuse=HttpAccess(None, is_local=False).refusal
        )
        server = await listener.start(host=HOST, port=0)
        async with server, asyncio.timeout(SECONDS_MAX):
            return await _ask(server.sockets[0].getsockname()[1], READY)

    assert asyncio.run(run()) == (503, b'{"status": "not ready"}\n')
