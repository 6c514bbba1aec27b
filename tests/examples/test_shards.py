"""The examples of shards: over memory and disk, on one thread and on several."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kohort.hosting import hosted
from kohort.machine.shard import Result
from kohort.model.errors import InvariantError

WITHOUT_A_RESPONSE = (
    "the operation returned a Result without a response, so its caller would wait for ever; "
    "give it one: Result(records, response)"
)
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in set(sys.modules) & {"counter", "leases"} - before:
        del sys.modules[name]


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_the_counter_counts(threads: int, is_on_disk: bool, tmp_path: Path) -> None:
    from counter import CounterShard, CountSerde

    data_dir = tmp_path if is_on_disk else None
    with hosted(CounterShard, CountSerde(), data_dir=data_dir, threads=threads, partitions=3) as host:
        for number in range(1, 11):
            for partition in range(3):
                assert host.write(partition, lambda shard, _: shard.increment("n")) == number
        assert host.query(0, lambda shard, offset: shard.count("n", offset)) == 10
    if is_on_disk:
        with hosted(CounterShard, CountSerde(), data_dir=data_dir, threads=threads, partitions=3) as host:
            assert host.query(2, lambda shard, offset: shard.count("n", offset)) == 10


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (Result(["a record"]), InvariantError, WITHOUT_A_RESPONSE),
        (Result(), InvariantError, WITHOUT_A_RESPONSE),
        (None, TypeError, "the operation returned NoneType, and not a Result(records, response)"),
        ("done", TypeError, "the operation returned str, and not a Result(records, response)"),
    ],
)
def test_an_operation_without_an_answer_fails_at_once_and_says_what_is_missing(
    threads: int, returned: Any, error: type[Exception], message: str
) -> None:
    from counter import CounterShard, CountSerde

    with hosted(CounterShard, CountSerde(), threads=threads) as host:
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            host.write(0, lambda _shard, _now_ms: returned)
        replies: SimpleQueue[type[Exception]] = SimpleQueue()
        if not isinstance(returned, Result):
            # Callers with a reply hear of it, too.
            answer = host.runtime.write(0, lambda _shard, _now_ms: returned, replies.put, type)
            assert (answer or replies.get(timeout=60)) in (AttributeError, TypeError)
        assert host.write(0, lambda shard, _: shard.increment("n")) == 1, "nothing was written"


def test_the_counter_is_short() -> None:
    assert len((EXAMPLES / "counter.py").read_text().splitlines()) <= 60


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_leases_fence(threads: int, is_on_disk: bool, tmp_path: Path) -> None:
    from leases import LeaseSerde, LeaseShard

    data_dir = tmp_path if is_on_disk else None
    with hosted(LeaseShard, LeaseSerde(), data_dir=data_dir, threads=threads) as host:

        def acquire(holder: str, ttl_ms: int) -> Any:
            return host.write(0, lambda shard, now_ms: shard.acquire("leader", holder, ttl_ms, now_ms))

        ann = acquire("ann", 60_000)
        assert (ann.holder, ann.token) == ("ann", 1)
        assert acquire("bob", 60_000) == ann, "it is taken"
        assert acquire("ann", 60_000).token == 1, "a renewal keeps the token"
        assert not host.write(0, lambda shard, _: shard.release("leader", 7))
        assert host.write(0, lambda shard, _: shard.release("leader", 1))
        assert acquire("bob", 60_000).token == 2
    if is_on_disk:
        with hosted(LeaseShard, LeaseSerde(), data_dir=data_dir, threads=threads) as host:
            assert host.query(0, lambda shard, offset: shard.holder("leader", offset)) == "bob"


def test_a_lease_ends_by_itself_in_its_millisecond_also_after_a_load() -> None:
    from leases import LeaseSerde, LeaseShard

    from kohort.runtime import InlineProcessor, Runtime
    from kohort.testing import FaultyLog, VirtualNode

    node, log = VirtualNode(), FaultyLog()
    runtime = Runtime(
        make_shard=LeaseShard,
        serde=LeaseSerde(),
        clock=node.clock,
        processor=InlineProcessor(node.wheel, node.defer, node.call_soon),
    )

    def lead(leader_epoch: int) -> None:
        runtime.unload(0, leader_epoch)
        runtime.load(0, log, leader_epoch)
        node.settle()

    def holder() -> str:
        node.settle()
        log.commit()
        return runtime.query(0, lambda shard, offset: shard.holder("leader", offset))

    lead(1)
    runtime.submit(0, lambda shard, now_ms: shard.acquire("leader", "ann", 1000, now_ms))
    assert holder() == "ann"
    node.advance(600)
    runtime.submit(0, lambda shard, now_ms: shard.acquire("leader", "ann", 1000, now_ms))
    assert holder() == "ann"
    node.advance(500)
    lead(2)
    node.advance(499)
    assert holder() == "ann"
    node.advance(1)
    assert holder() == ""
    bob = runtime.submit(0, lambda shard, now_ms: shard.acquire("leader", "bob", 1000, now_ms))
    assert holder() == "bob"
    assert bob.result(0).token == 2


def test_the_examples_run_as_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import counter
    import leases

    counter.main(tmp_path / "counter")
    assert "after a restart: 3" in capsys.readouterr().out
    leases.main(tmp_path / "leases")
    assert "after a restart: ann" in capsys.readouterr().out
