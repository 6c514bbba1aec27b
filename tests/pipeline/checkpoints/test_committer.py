"""`CommitOffsets` without Spark: the positions of a query in a consumer group, whatever becomes of the broker."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from kohort.model.errors import ConfigError
from kohort.pipeline import CommitOffsets
from kohort.pipeline.checkpoints import committer
from kohort.testing.broker import Broker
from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import wait_until
from tests.pipeline.checkpoints.written import BEGAN_MS, Checkpoint

pytestmark = pytest.mark.clients

QUERY, OTHER = "8b7ad2f1-6f7a-4b0e-9d3c-1c0e5b1f2a3d", "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True) as running:
        kohort("topics", "create", "orders", "--partitions", "3", bootstrap=running.bootstrap)
        yield running


def progress(batch: int, *sources: Any, query_id: str = QUERY, name: str | None = None) -> Any:
    """The event of a finished batch, as Spark makes it."""
    told = [{"description": "KafkaV2[Subscribe[orders]]", "endOffset": one} for one in sources]
    text = json.dumps({"id": query_id, "runId": OTHER, "name": name, "batchId": batch, "sources": told})
    return SimpleNamespace(progress=SimpleNamespace(json=text))


def started(*, query_id: str = QUERY, name: str | None = None) -> Any:
    return SimpleNamespace(id=query_id, runId=OTHER, name=name)


def committed(bootstrap: str, group: str) -> dict[int, tuple[int, str]]:
    rows = kohort_json("groups", "export", group, bootstrap=bootstrap)
    return {row["partition"]: (row["offset"], row["metadata"]) for row in rows}


def listener_of(bootstrap: str, group: str, **options: Any) -> Any:
    return CommitOffsets(group=group, bootstrap_servers=bootstrap, **options)


def test_the_end_offsets_of_each_batch(broker: Broker) -> None:
    listener = listener_of(broker.bootstrap, "each")
    # Spark writes offsets as JSON in JSON, or as text.
    listener.onQueryProgress(progress(0, {"orders": {"0": 3, "1": 4}}, {"logOffset": 7}))
    assert listener._committer.flush(10)
    metadata = f"spark query {QUERY} batch 0"
    assert committed(broker.bootstrap, "each") == {0: (3, metadata), 1: (4, metadata)}
    listener.onQueryProgress(progress(1, '{"orders":{"0":5,"1":4}}', None))
    listener.close()
    assert committed(broker.bootstrap, "each")[0] == (5, f"spark query {QUERY} batch 1")


def test_the_last_batch_before_a_restart(broker: Broker, tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "c")
    for batch, is_finished in ((0, True), (1, True), (2, False)):
        offsets = {"orders": {0: batch + 1}}
        query.batch(batch, offsets, at_ms=BEGAN_MS, finished_ms=BEGAN_MS if is_finished else None)
    listener = listener_of(broker.bootstrap, "restarted", checkpoint=f"file:{query.path}")
    listener.onQueryStarted(started())
    listener.onQueryTerminated(started())
    listener.close()
    assert committed(broker.bootstrap, "restarted") == {0: (2, f"spark query {QUERY} batch 1")}


def test_the_last_batch_is_told_after_the_end_of_the_query(broker: Broker, tmp_path: Path) -> None:
    listener = listener_of(broker.bootstrap, "late", checkpoint=str(tmp_path / "nowhere"))
    listener.onQueryStarted(started())

    def tell() -> None:
        listener.onQueryProgress(progress(0, {"orders": {"0": 1}}))
        listener.onQueryTerminated(SimpleNamespace(id=QUERY))

    telling = threading.Timer(0.3, tell)
    telling.start()
    listener.close()
    telling.join()
    assert committed(broker.bootstrap, "late")[0][0] == 1


def test_a_query_without_a_checkpoint_yet(broker: Broker, tmp_path: Path) -> None:
    listener = listener_of(broker.bootstrap, "new", checkpoint=str(tmp_path / "nowhere"))
    listener.onQueryStarted(started())
    listener.onQueryProgress(progress(0, {"orders": {"0": 1}}))
    listener.onQueryTerminated(started())
    listener.close()
    assert committed(broker.bootstrap, "new")[0][0] == 1


def test_a_position_that_comes_during_a_commit(broker: Broker) -> None:
    """The newer one is committed after it."""
    listener = listener_of(broker.bootstrap, "during")

    def slow() -> None:
        listener.onQueryProgress(progress(3, {"orders": {"0": 4}}))

    listener._committer.put(slow)
    listener.close()
    assert committed(broker.bootstrap, "during")[0][0] == 4


def test_one_query_has_the_group(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    listener = listener_of(broker.bootstrap, "first")
    listener.onQueryProgress(progress(0, {"orders": {"0": 1}}))
    assert listener._committer.flush(10)
    for _ in range(2):
        listener.onQueryProgress(progress(7, {"orders": {"0": 9}}, query_id=OTHER))
    listener.close()
    assert committed(broker.bootstrap, "first")[0][0] == 1
    assert [one.getMessage() for one in caplog.records] == [
        f"Query {OTHER} is not committed to group first, which has query {QUERY}: name it with query=..."
    ]
    named = listener_of(broker.bootstrap, "named", query="billing")
    named.onQueryProgress(progress(7, {"orders": {"0": 9}}, name="other"))
    named.onQueryProgress(progress(0, {"orders": {"0": 2}}, query_id=OTHER, name="billing"))
    named.close()
    assert committed(broker.bootstrap, "named")[0] == (2, f"spark query {OTHER} batch 0")


def test_a_group_with_members_is_refused(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    async def with_a_member() -> None:
        reader = AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap, group_id="busy")
        await reader.start()
        try:
            listener = listener_of(broker.bootstrap, "busy")
            await asyncio.to_thread(listener.onQueryProgress, progress(0, {"orders": {"0": 1}}))
            assert await asyncio.to_thread(listener._committer.flush, 10)
            assert listener._committer.is_refused
            await asyncio.to_thread(listener.onQueryProgress, progress(1, {"orders": {"0": 2}}))
            await asyncio.to_thread(listener.close)
        finally:
            await reader.stop()

    asyncio.run(with_a_member())
    (told,) = [one.getMessage() for one in caplog.records if one.name == "kohort.pipeline.CommitOffsets"]
    assert told.startswith("group busy has members of its own, so the positions of query")
    offsets = kohort_json("groups", "export", "busy", bootstrap=broker.bootstrap)
    assert all("spark" not in (row["metadata"] or "") for row in offsets)


def test_what_spark_may_say_wrongly_never_reaches_it(broker: Broker) -> None:
    listener = listener_of(broker.bootstrap, "wrong")
    for text in ("", "[]", "{}", '{"id":"x","batchId":0,"sources":[{"endOffset":{"orders":{"0":-5}}}]}'):
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json=text)))
    listener.onQueryProgress(SimpleNamespace())
    listener.onQueryIdle(None)
    listener.onQueryTerminated(SimpleNamespace(id=OTHER))
    listener.close()


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match="99999"):
        listener_of("127.0.0.1:99999", "g")
    with pytest.raises(ConfigError, match="unknown option"):
        listener_of("127.0.0.1:1", "g", options={"kafka.nonsense": "1"})


def test_a_broker_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "BEHIND_S", 0.0)
    monkeypatch.setattr(committer, "PAUSE_LAST_S", 0.2)
    caplog.set_level(logging.WARNING)
    with ServedKohort(tmp_path) as broker:
        kohort("topics", "create", "orders", "--partitions", "1", bootstrap=broker.bootstrap)
        listener = listener_of(broker.bootstrap, "away")
        listener.onQueryProgress(progress(0, {"orders": {"0": 1}}))
        assert listener._committer.flush(10)
        broker.kill()
        for batch in range(1, 200):
            listener.onQueryProgress(progress(batch, {"orders": {"0": batch + 1}}))
        wait_until(lambda: any("behind its query" in one.getMessage() for one in caplog.records), what="the warning")
        broker.start()
        assert listener._committer.flush(30)
        assert committed(broker.bootstrap, "away") == {0: (200, f"spark query {QUERY} batch 199")}
        listener.close()
    told = [one.getMessage() for one in caplog.records if one.name == "kohort.pipeline.CommitOffsets"]
    assert len(told) == 2
    assert "last committed batch: 0" in told[0]
    assert told[1] == "Group away is up to date again."


def test_starting_offsets_for_a_query(broker: Broker) -> None:
    kohort("topics", "create", "refunds", "--partitions", "2", bootstrap=broker.bootstrap)
    listener = listener_of(broker.bootstrap, "given")
    listener.onQueryProgress(progress(0, {"orders": {"2": 0, "0": 0}, "refunds": {"1": 0}}))
    listener.close()
    done = kohort("groups", "export", "given", "--format", "spark", bootstrap=broker.bootstrap)
    # Spark wants every partition: -2 is the earliest offset.
    assert json.loads(done.stdout) == {"orders": {"0": 0, "1": -2, "2": 0}, "refunds": {"0": -2, "1": 0}}
    for words in (("given", "each"), ("--all-groups",), ("given", "--csv")):
        kohort("groups", "export", *words, "--format", "spark", bootstrap=broker.bootstrap, codes=(2,))
    kohort("groups", "export", "given", "--format", "flink", bootstrap=broker.bootstrap, codes=(2,))


def test_a_group_from_a_checkpoint(broker: Broker, tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "c")
    query.batch(4, {"orders": {0: 0, 1: 0}}, at_ms=BEGAN_MS, finished_ms=BEGAN_MS)
    before = {path: path.read_bytes() for path in query.path.rglob("*") if path.is_file()}
    words = ("groups", "import", "taken", "--checkpoint", str(query.path))
    kohort(*words, bootstrap=broker.bootstrap)
    kohort("groups", "export", "taken", bootstrap=broker.bootstrap, codes=(2,))
    kohort(*words, "--execute", bootstrap=broker.bootstrap)
    metadata = f"spark query {QUERY} batch 4"
    assert committed(broker.bootstrap, "taken") == {0: (0, metadata), 1: (0, metadata)}
    assert {path: path.read_bytes() for path in query.path.rglob("*") if path.is_file()} == before
    kohort(*words, "--group", "x", bootstrap=broker.bootstrap, codes=(2,))
    query.write("offsets/4", b"v1\n{}\n{", BEGAN_MS)
    kohort(*words, bootstrap=broker.bootstrap, codes=(2,))
    kohort("groups", "import", "g", "--checkpoint", str(tmp_path / "no"), bootstrap=broker.bootstrap, codes=(2,))
