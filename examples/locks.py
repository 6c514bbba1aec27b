"""
Fair locks: a client that asks for a taken lock waits in line, until the holder releases the lock or is silent for too long.

An operation reads the state and returns values: records, a response or a `Wait`, requests to wake, deadlines. The runtime keeps
the waiting requests. If a record cannot be written it takes all of it back: the line, the waits and the deadlines.

    python examples/locks.py [DIRECTORY]
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from kohort.hosting import hosted
from kohort.machine import (
    ClusterImage,
    Deadline,
    Deadlines,
    Operation,
    PlainShard,
    Result,
    SnapshotRegistry,
    TimelineDict,
    Wait,
    Wake,
)

LEASE_MS = 10_000
"""A holder that does not renew its lock for so long loses it."""


class Lock(msgspec.Struct, frozen=True, array_like=True):
    """A lock and its holder, "" for none. The token rises with every holder, so that a resource can refuse an earlier one."""

    name: str
    holder: str = ""
    token: int = 0


class LockSerde:
    def encode(self, record: Lock, /) -> tuple[bytes, bytes | None]:
        return record.name.encode(), msgspec.json.encode(record)

    def decode(self, _key: bytes, value: bytes | None, /) -> Lock:
        return msgspec.json.decode(value or b"", type=Lock)


class LockShard(PlainShard[Lock]):
    """The locks of one partition. `lines` is not in the log: its clients wait for an answer of this process."""

    soft_state = ("lines",)

    def __init__(self, _partition: int, registry: SnapshotRegistry, deadlines: Deadlines) -> None:
        self.locks: TimelineDict[str, Lock] = TimelineDict(registry)
        self.lines: TimelineDict[str, tuple[str, ...]] = TimelineDict(registry)
        self.deadlines = deadlines

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: Lock, /) -> None:
        self.locks.put(record.name, record)

    def on_loaded(self, _image: ClusterImage, _now_ms: int, /) -> Result[Lock, Any]:
        return Result(deadlines=[lease(lock) for lock in self.locks.values() if lock.holder])


def acquire(shard: LockShard, _now_ms: int, name: str, client: str, patience_ms: int) -> Result[Lock, Lock]:
    """Answer with the lock once the client holds it, or with one of nobody when its patience ends."""
    lock = shard.locks.get(name, Lock(name))
    if lock.holder in ("", client):
        taken = lock if lock.holder else Lock(name, client, lock.token + 1)
        return Result([taken], taken, deadlines=[lease(taken)])
    line = shard.lines.get(name, ())
    if client not in line:
        shard.lines.put(name, (*line, client))
    late = Operation(give_up, name, client)
    return Result((), Wait(("lock", name, client), patience_ms, late=late, replaced=Lock(name)))


def give_up(shard: LockShard, _now_ms: int, name: str, client: str) -> Result[Lock, Lock]:
    shard.lines.put(name, tuple(each for each in shard.lines.get(name, ()) if each != client))
    return Result((), Lock(name))


def renew(shard: LockShard, _now_ms: int, name: str, token: int) -> Result[Lock, bool]:
    lock = shard.locks.get(name)
    is_held = lock is not None and lock.token == token and bool(lock.holder)
    if is_held:
        shard.deadlines.extend(("lease", name), LEASE_MS)
    return Result((), is_held)


def release(shard: LockShard, _now_ms: int, name: str, token: int) -> Result[Lock, bool]:
    """Hand the lock to the first in line. The response is False if the token is not that of the holder."""
    lock = shard.locks.get(name)
    if lock is None or lock.token != token or not lock.holder:
        return Result((), False)
    line = shard.lines.get(name, ())
    if not line:
        return Result([Lock(name, "", token)], True, deadlines=[Deadline(("lease", name))])
    shard.lines.put(name, line[1:])
    taken = Lock(name, line[0], token + 1)
    return Result([taken], True, wakes=[Wake(("lock", name, line[0]), taken)], deadlines=[lease(taken)])


def lease(lock: Lock) -> Deadline:
    return Deadline(("lease", lock.name), LEASE_MS, Operation(release, lock.name, lock.token))


def main(data_dir: Path) -> None:
    with hosted(LockShard, LockSerde(), data_dir=data_dir, threads=2) as host:
        held = host.write(0, Operation(acquire, "printer", "ann", 0))
        print(held)
        bob = host.runtime.submit(0, Operation(acquire, "printer", "bob", 60_000))
        print(host.write(0, Operation(acquire, "printer", "cid", 0)), "nobody waits without patience")
        print("given back:", host.write(0, Operation(release, "printer", held.token)))
        print(host.wait(bob), "waited in line")
    with hosted(LockShard, LockSerde(), data_dir=data_dir, threads=0) as host:
        print("after a restart:", host.query(0, lambda shard, offset: shard.locks.get_at("printer", offset)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
