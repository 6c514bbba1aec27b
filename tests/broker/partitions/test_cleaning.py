"""The broker has compacted logs cleaned: how often, which, and that a topic's changed configuration holds from then on."""

from pathlib import Path
from typing import Any

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions.maintenance import cleaner_config
from kohort.model.ids import TopicPartition
from kohort.storage.disk import DiskStore
from kohort.storage.logs.disklog import DiskLog
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.storage.compacted import make_durable, put, records, roll
from tests.storage.owner import AWAITED, Owner

NOW_MS = 1_700_000_000_000


def start(path: Path, **settings: Any) -> tuple[Owner, DiskStore, Harness]:
    owner = Owner()
    store = owner.disk(path, flush="os", **AWAITED)
    return owner, store, Harness(store=store, node=owner.node, **settings)


@pytest.mark.parametrize(
    ("text", "factor"),
    [("NaN", 0.0), ("-1", 0.0), ("-Infinity", 0.0), ("Infinity", 1.0), ("1e9", 1.0), ("0x1p-1", 0.5)],
)
def test_any_load_factor_is_one_that_the_cleaner_can_compute_with(text: str, factor: float) -> None:
    config = BrokerConfig({"log.cleaner.io.buffer.load.factor": text})
    assert cleaner_config(config).io_buffer_load_factor == factor


def fill(owner: Owner, store: DiskStore) -> DiskLog:
    log = store.get(TopicPartition("t", 0))
    assert log is not None
    for number in range(4):
        put(log, ("k", f"{number}"), timestamp_ms=NOW_MS)
        roll(log)
    put(log, ("active", "v"), timestamp_ms=NOW_MS)
    make_durable(owner, store)
    return log


def set_policy(harness: Harness, policy: str) -> None:
    config = m.IncrementalAlterConfigsRequestAlterableConfig(name="cleanup.policy", config_operation=0, value=policy)
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=2, resource_name="t", configs=(config,)
    )
    response = harness.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, m.IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == 0


def test_a_topic_that_becomes_compacted_is_cleaned_at_the_next_look(tmp_path: Path) -> None:
    owner, store, harness = start(tmp_path, log_cleaner_backoff_ms="1000")
    harness.create("t")
    harness.broker.partitions.find("t", 0)
    log = fill(owner, store)
    owner.node.advance(1000)
    assert not store.cleaner.in_progress
    set_policy(harness, "compact")
    owner.node.advance(999)
    assert not store.cleaner.in_progress
    owner.node.advance(1)
    owner.wait_for(lambda: store.cleaner.metrics().passes == 1 and not store.cleaner.in_progress)
    assert [(offset, value) for offset, _, value in records(log)] == [(3, b"3"), (4, b"v")]
    assert store.cleaner.metrics().since_last_run_s == 0
    store.close()


def test_a_cleaner_that_is_switched_off_cleans_nothing(tmp_path: Path) -> None:
    owner, store, harness = start(tmp_path, log_cleaner_backoff_ms="1000", log_cleaner_enable="false")
    harness.create("t", cleanup_policy="compact")
    harness.broker.partitions.find("t", 0)
    log = fill(owner, store)
    owner.node.advance(60_000)
    assert not store.cleaner.in_progress
    assert len(records(log)) == 5
    store.close()
