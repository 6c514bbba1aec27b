"""The example of fair locks: a table of what clients are told, and random moves with failing appends, crashes and lost time."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.hosting import hosted
from kohort.machine.shard import Result
from kohort.machine.steps import Operation
from kohort.model.errors import UnavailableError
from kohort.runtime import InlineProcessor, Runtime
from kohort.testing import FaultyLog, SimulationError, Subject, VirtualNode, Work, simulate
from tests.conftest import LONG

SEEDS = 10_000 if LONG else 300
ONE = os.environ.get("KOHORT_SEED")
REPEAT = "KOHORT_SEED={seed} pytest tests/examples/test_locks.py -k every_seed"
EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = "ABCD"


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    sys.modules.pop("locks", None)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_lock_is_handed_over_in_the_order_of_asking(threads: int, is_on_disk: bool, tmp_path: Path) -> None:
    import locks as it

    data_dir = tmp_path if is_on_disk else None
    with hosted(it.LockShard, it.LockSerde(), data_dir=data_dir, threads=threads, checks_state=True) as host:

        def asks(client: str) -> Any:
            return host.runtime.submit(0, Operation(it.acquire, "l", client, 60_000))

        def gives_back(token: int) -> bool:
            return bool(host.write(0, Operation(it.release, "l", token)))

        asked = [asks(client) for client in CLIENTS]
        for token, future in enumerate(asked, 1):
            assert host.wait(future) == it.Lock("l", CLIENTS[token - 1], token)
            assert not gives_back(token + 1), "a token of nobody"
            assert not any(later.done() for later in asked[token:])
            assert gives_back(token)
        assert not gives_back(len(CLIENTS)), "it was given back before"
    if is_on_disk:
        with hosted(it.LockShard, it.LockSerde(), data_dir=data_dir, threads=threads) as host:
            assert host.write(0, Operation(it.acquire, "l", "E", 0)) == it.Lock("l", "E", len(CLIENTS) + 1)


class Bench:
    """A shard of locks in virtual time."""

    def __init__(self) -> None:
        import locks

        self.it = locks
        self.node, self.log = VirtualNode(), FaultyLog()
        self.runtime = Runtime(
            make_shard=locks.LockShard,
            serde=locks.LockSerde(),
            checks_state=True,
            clock=self.node.clock,
            processor=InlineProcessor(self.node.wheel, self.node.defer, self.node.call_soon),
        )
        self.lead(1)

    def lead(self, leader_epoch: int) -> None:
        self.runtime.unload(0, leader_epoch)
        self.runtime.load(0, self.log, leader_epoch)
        self.node.settle()

    def asks(self, client: str, patience_ms: int = 60_000) -> Any:
        return self.runtime.submit(0, Operation(self.it.acquire, "l", client, patience_ms))

    def gives_back(self, token: int) -> Any:
        return self.runtime.submit(0, Operation(self.it.release, "l", token))

    def go_on(self, duration_ms: int = 0) -> None:
        self.node.advance(duration_ms)
        self.log.commit()
        self.node.settle()


def test_a_hand_over_that_cannot_be_written_changes_nothing() -> None:
    bench = Bench()
    ann, bob = bench.asks("A"), bench.asks("B")
    bench.go_on()
    assert ann.result(0).token == 1
    bench.log.fail_next_append = UnavailableError("full")
    given = bench.gives_back(1)
    bench.go_on()
    with pytest.raises(UnavailableError):
        given.result(0)
    assert not bob.done()
    again = bench.gives_back(1)
    bench.go_on()
    assert again.result(0)
    assert bob.result(0) == bench.it.Lock("l", "B", 2)


def test_a_silent_holder_loses_the_lock_in_its_millisecond_and_one_that_renews_keeps_it() -> None:
    bench = Bench()
    bench.asks("A")
    bob = bench.asks("B")
    bench.go_on(9_999)
    renewed = bench.runtime.submit(0, Operation(bench.it.renew, "l", 1))
    assert renewed.result(0)
    bench.go_on(9_999)
    assert not bob.done()
    bench.go_on(1)
    assert bob.result(0) == bench.it.Lock("l", "B", 2)
    assert not bench.runtime.submit(0, Operation(bench.it.renew, "l", 1)).result(0)


def test_after_a_load_a_holder_has_a_whole_lease() -> None:
    bench = Bench()
    bench.asks("A")
    bench.go_on(9_000)
    bench.lead(2)
    bob = bench.asks("B")
    bench.go_on(9_999)
    assert not bob.done()
    bench.go_on(1)
    assert bob.result(0).token == 2


class LockWorkload:
    """Clients that ask for two locks, renew them and give them back, also with tokens of others. Tokens fence."""

    def __init__(self, it: Any) -> None:
        self._it = it
        self._tokens: dict[str, int] = {}
        self._holders: dict[tuple[str, int], str] = {}
        self.handed_over = 0

    def __call__(self, chance: Random) -> Work:
        name, client = chance.choice("xy"), chance.choice(CLIENTS)
        step = chance.random()
        if step < 0.55:
            operation = Operation(self._it.acquire, name, client, chance.choice((0, 100, 5_000, 20_000)))

            def answered(lock: Any) -> None:
                if isinstance(lock, Exception) or not lock.holder:
                    return
                assert lock.holder == client, "a lock of another client"
                assert self._holders.setdefault((name, lock.token), client) == client, "two clients with one token"
                self._tokens[name] = max(self._tokens.get(name, 0), lock.token)

            return Work(operation, on_answer=answered)
        token = self._tokens.get(name, 0) - chance.choice((0, 0, 0, 1))
        return Work(Operation(self._it.renew if step < 0.65 else self._it.release, name, token))


def subject(it: Any) -> Subject[Any]:
    def picture(shard: Any, offset: int) -> object:
        return dict(shard.locks.items_at(offset))

    return Subject(it.LockShard, it.LockSerde(), picture, partition_count=1)


def test_every_seed_keeps_the_guarantees(seed: int) -> None:
    import locks as it

    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        simulate(each, subject(it), LockWorkload(it), repeat=REPEAT)


def test_a_line_that_is_not_taken_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation finds a shard that wakes a client whose lock is not in the log."""
    import locks as it

    def wakes_early(shard: Any, now_ms: int, name: str, token: int) -> Result[Any, bool]:
        result = release(shard, now_ms, name, token)
        return Result((), result.response, wakes=result.wakes, deadlines=result.deadlines)

    release = it.release
    monkeypatch.setattr(it, "release", wakes_early)
    assert any(not holds(it, seed) for seed in range(300))


def holds(it: Any, seed: int) -> bool:
    try:
        simulate(seed, subject(it), LockWorkload(it))
    except SimulationError:
        return False
    return True


def test_the_service_is_short() -> None:
    """Without its records, its serde and its main program."""
    source = (EXAMPLES / "locks.py").read_text()
    service = source[source.index("class LockShard") : source.index("def main")]
    assert len([line for line in service.splitlines() if line.strip()]) <= 60
