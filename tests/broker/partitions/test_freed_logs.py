"""A deleted topic leaves no log in memory, although no garbage collection runs: those of a server are rare."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

from kohort.storage.logs.base import LogBase
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from tests.broker.harness import Asker, Harness, disk_store
from tests.broker.records.test_fetch import asked, fetch_request
from tests.broker.test_any_request import NEWEST, samples


def come_and_go(harness: Harness, name: str) -> None:
    """A topic with records, a consumer that waits for more, and a producer that waits for the disk."""
    harness.create(name, 2)
    for partition in range(2):
        harness.write(name, b"v" * 10_000, partition=partition)
    fetch = fetch_request(asked(1), topic=name, max_wait_ms=60_000, session_epoch=0)
    waiting = harness.begin(ApiKey.FETCH, fetch, version=12)
    assert waiting == []
    request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name=name)], timeout_ms=1_000)
    (result,) = harness.ask(ApiKey.DELETE_TOPICS, request).responses
    assert (result.error_code, len(waiting)) == (0, 1)


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_the_log_of_a_deleted_topic_is_freed_at_once(tmp_path: Path, is_on_disk: bool) -> None:
    node = VirtualNode()
    store = disk_store(tmp_path, node) if is_on_disk else None
    harness = Harness(node=node, store=store, max_incremental_fetch_session_cache_slots="2")

    def logs() -> set[str]:
        node.advance(60_000)
        harness.store.flush()
        return {each.topic_partition.topic for each in gc.get_objects() if isinstance(each, LogBase)}

    gc.collect()
    gc.disable()
    try:
        before = logs()
        for number in range(20):
            come_and_go(harness, f"t{number}")
        assert logs() <= before
    finally:
        gc.enable()
    harness.store.close()


def test_no_request_leaves_a_cycle() -> None:
    """What waits for a garbage collection takes memory until then."""
    harness = Harness(release=NEWEST)
    harness.host_transactions()
    harness.host_shares()
    harness.create("t", 2)
    requests = []
    for frame in samples():
        api_key, version, _, client_id, body = read_request_header(frame)
        requests.append((API_KEYS[api_key], version, client_id, request_reader(api_key, version)(frame, body)))

    def ask_all() -> None:
        for api_key, version, client_id, request in requests:
            asker = Asker(version, client_id, later=harness.node.call_soon)
            response = harness.broker.handlers[api_key](request, asker, lambda _response: None)
            if isinstance(response, Generator):
                drain(response)
            harness.node.advance(1_000)

    ask_all()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        ask_all()
        gc.collect()
        assert gc.garbage == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
