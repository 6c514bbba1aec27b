"""A running cluster is read over the wire as its files would be."""

import asyncio
import json
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.client.security import PLAINTEXT
from kohort.model.errors import ConfigError
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.schemas import KINDS
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources import live
from kohort.pipeline.sources.first_unread import find_unread
from kohort.pipeline.sources.live import FetchTask
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import read_task
from kohort.testing.served import ServedKohort
from tests.pipeline.logbytes import batch, decode_directory
from tests.pipeline.platforms import bare_python
from tests.pipeline.zipped import write_zip

RECORDS = 50


async def produce_and_commit(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(RECORDS):
        await producer.send_and_wait("orders", b"%d" % number, partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="readers", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition("orders", 0)])
    for offset in (3, 7, 11):
        await consumer.commit({TopicPartition("orders", 0): offset})
    await consumer.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker with some records and commits: its address and its data directory."""
    directory = tmp_path_factory.mktemp("kohort")
    with ServedKohort(directory, {"offsets.topic.num.partitions": "2"}) as broker:
        asyncio.run(produce_and_commit(broker.bootstrap))
        yield f"kafka://{broker.bootstrap}", directory / "data"


def rows_of(path: str, topics: set[str]) -> list[dict[str, Any]]:
    decoder = Decoder(kinds=set(KINDS) - {"segment"})
    rows = []
    for log in live.list_logs(path, topics=topics):
        for found in FetchTask(0, log, PLAINTEXT).read(decoder, Note(None, 0)):
            rows += found.to_pylist()
    return [placeless(row) for row in rows]


OF_A_PLATFORM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import read_task
options = SourceOptions.parse(json.loads(sys.argv[2]))
rows = [row for task in tasks_of(options) for part in read_task(options, task) for row in part.to_pylist()]
print(json.dumps({"native": sorted({"kio", "msgspec", "crc32c"} & sys.modules.keys()), "rows": rows}, default=str))
"""


def test_a_python_of_a_platform_reads_a_cluster(cluster: tuple[str, Path], tmp_path: Path) -> None:
    """Responses are read without kio, as on executors of Spark that get Kohort as a zip file."""
    told = {"path": cluster[0], "topics": "*", "kinds": "offset_commit,coordinator,group_metadata,batch"}
    python, archive = bare_python(tmp_path / "bare").python, write_zip(tmp_path / "kohort.zip")
    command = [str(python), "-I", "-c", OF_A_PLATFORM, str(archive), json.dumps(told)]
    done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    options = SourceOptions.parse(told)
    rows = [row for task in tasks_of(options) for part in read_task(options, task) for row in part.to_pylist()]
    assert [row["offset"] for row in rows if row["kind"] == "offset_commit"] == [3, 7, 11]
    assert done == {"native": [], "rows": json.loads(json.dumps(rows, default=str))}


def placeless(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "segment": None, "position": None}


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets"])
def test_what_is_fetched_is_what_the_files_hold(cluster: tuple[str, Path], topic: str) -> None:
    path, data = cluster
    decoder = Decoder(kinds=set(KINDS) - {"segment"})
    files = decode_directory(list_segments(data, topics={topic}), decoder).to_pylist()
    assert len(files) > 3
    assert rows_of(path, {topic}) == [placeless(row) for row in files]


def test_logs_are_listed_with_their_ends(cluster: tuple[str, Path]) -> None:
    path, _ = cluster
    (orders,) = live.list_logs(path, topics={"orders", "not-there"})
    assert (orders.topic, orders.partition, orders.start, orders.end) == ("orders", 0, 0, RECORDS)
    logs = live.list_logs(path, partitions={0})
    assert {log.topic for log in logs} >= {"orders", "__consumer_offsets"}


def test_the_newest_of_a_log_is_its_end(cluster: tuple[str, Path]) -> None:
    asked = SourceOptions.parse({"path": cluster[0], "topics": "orders", "kinds": "batch,segment", "newest": "true"})
    rows = [row for task in tasks_of(asked) for found in read_task(asked, task) for row in found.to_pylist()]
    assert [(row["kind"], row["next_offset"]) for row in rows] == [("segment", RECORDS)]


def test_the_first_unread_record_is_fetched_alone(cluster: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = cluster
    committed = {("orders", 0): [0, 7, RECORDS - 1, RECORDS], ("not-there", 0): [5]}
    expected = find_unread(SourceOptions.parse({"path": str(data)}), committed)
    assert set(expected["orders", 0].produced) == {0, 7, RECORDS - 1}
    sizes: list[int] = []
    fetch = live.fetch

    def counted(*arguments: Any) -> tuple[bytes, int]:
        piece, following = fetch(*arguments)
        sizes.append(len(piece))
        return piece, following

    monkeypatch.setattr(live, "fetch", counted)
    assert find_unread(SourceOptions.parse({"path": path}), committed) == expected
    assert len(sizes) == 3
    assert max(sizes) <= 16 << 10


def test_the_ends_of_logs_for_a_copy_without_them(cluster: tuple[str, Path], tmp_path: Path) -> None:
    """`lag --ends`: offsets of a copy of the coordinator's log, lag and waiting records of the running cluster."""
    path, data = cluster
    for log in data.glob("__consumer_offsets-*"):
        shutil.copytree(log, tmp_path / log.name)

    def lag(*options: str) -> tuple[int, list[dict[str, Any]], str]:
        done = CliRunner().invoke(app, ["lag", str(tmp_path), "--time", "--json", "--engine", "local", *options])
        return done.exit_code, json.loads(done.stdout or "[]"), done.stderr

    code, (row,), told = lag()
    assert (code, row["offset"], row["lag"], row["time_lag_ms"]) == (0, 11, None, None)
    assert "has no log of orders-0" in told
    code, (row,), told = lag("--ends", path)
    assert (code, row["offset"], row["end_offset"], row["lag"], told) == (0, 11, RECORDS, RECORDS - 11, "")
    assert (row["is_exact"], row["records_lost"]) == (True, 0)
    assert row["time_lag_ms"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--ends", "localhost:9092"), "name a running cluster, kafka://HOST:PORT"),
        (("--ends", "kafka://h:1", "--history"), "cannot be used with --history or --as-of"),
        (("--ends", "kafka://h:1", "--as-of", "5"), "cannot be used with --history or --as-of"),
    ],
)
def test_ends_that_cannot_be_meant(
    tmp_path: Path, options: tuple[str, ...], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert CliRunner().invoke(app, ["lag", str(tmp_path), *options]).exit_code == 2
    assert sentence in capfd.readouterr().err
    assert CliRunner().invoke(app, ["lag", "kafka://h:1", "--ends", "kafka://h:1"]).exit_code == 2
    assert "is a running cluster" in capfd.readouterr().err


def test_a_log_that_was_cut_meanwhile_is_a_sentence(cluster: tuple[str, Path]) -> None:
    (orders,) = live.list_logs(cluster[0], topics={"orders"})
    gone = live.LiveLog("orders", 0, 1000, 1001, orders.host, orders.port)
    with pytest.raises(ConfigError, match=r"orders-0 cannot be read: OFFSET_OUT_OF_RANGE"):
        list(FetchTask(0, gone, PLAINTEXT).read(Decoder(), Note(None, 0)))


def test_a_log_that_no_client_can_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"brokers do not serve __cluster_metadata to clients; read it from the data"):
        live.list_logs("kafka://127.0.0.1:1", topics={"orders", "__cluster_metadata"})


def test_nobody_answers() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ConfigError, match=r"no broker answers at 127.0.0.1:"):
        live.list_logs(f"kafka://127.0.0.1:{port}")


# fmt: off
PATHS = {
    "kafka://":               "names no broker",
    "kafka://host:port":      "is not a broker address",
}
# fmt: on


@pytest.mark.parametrize("path", PATHS)
def test_an_address_that_is_none(path: str) -> None:
    with pytest.raises(ConfigError, match=PATHS[path]):
        live.list_logs(path)


def test_a_batch_that_was_cut_off_is_left_for_later() -> None:
    first, second = batch(0, [(b"k", b"v")] * 3), batch(3, [(b"k", b"v")])
    whole = first + second
    assert live.whole_batches(whole) == (len(whole), 4)
    for end in range(len(first), len(whole)):
        assert live.whole_batches(whole[:end]) == (len(first), 3)
    for end in range(len(first)):
        assert live.whole_batches(whole[:end]) == (0, 0)
    assert live.whole_batches(struct.pack(">qi", 0, -1) + bytes(100)) == (0, 0)


@pytest.mark.spark
def test_tables_of_a_running_cluster(spark: Any, cluster: tuple[str, Path]) -> None:
    from kohort.pipeline.jobs import publish
    from kohort.pipeline.jobs.reading import Reading
    from kohort.pipeline.jobs.tables import Tables

    tables = Tables(Reading(spark, cluster[0]))
    (row,) = publish.rows(tables.time_lag, "time_lag")
    assert (row["group"], row["topic"], row["offset"], row["end_offset"], row["lag"]) == (
        "readers",
        "orders",
        11,
        RECORDS,
        RECORDS - 11,
    )
    assert row["time_lag_ms"] > 0
    assert [one["partition"] for one in publish.rows(tables.status, "status")] == [0]
