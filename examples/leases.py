"""
Leases: each name has a holder, an expiry time, and a fencing token that increases with every new holder.

A resource remembers the highest token that it has seen and rejects lower ones, so a slow holder of an expired lease cannot
write. A lease expires by a deadline, whose operation is one like any other. A load begins the deadlines again.

    python examples/leases.py [DIRECTORY]
"""

import sys
import tempfile
from pathlib import Path

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
)


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """The lease of `name`; `holder` is empty if nobody holds it. The token remains, so that the next one is higher."""

    name: str
    holder: str
    token: int
    expires_ms: int


class LeaseSerde:
    """Encodes leases: the name is the key, the lease the value."""

    def encode(self, record: Lease, /) -> tuple[bytes, bytes | None]:
        return record.name.encode(), msgspec.json.encode(record)

    def decode(self, _key: bytes, value: bytes | None, /) -> Lease:
        return msgspec.json.decode(value or b"", type=Lease)


class LeaseShard(PlainShard[Lease]):
    """The leases of one partition."""

    def __init__(self, _partition: int, registry: SnapshotRegistry, _deadlines: Deadlines) -> None:
        self.leases: TimelineDict[str, Lease] = TimelineDict(registry)

    def acquire(self, name: str, holder: str, ttl_ms: int, now_ms: int) -> Result[Lease, Lease]:
        """
        Acquire or renew a lease. Returns the lease in effect, which may belong to another holder.

        A renewal keeps the token.
        """
        lease = self.leases.get(name)
        if lease is not None and lease.holder not in ("", holder) and lease.expires_ms > now_ms:
            return Result((), lease)
        is_renewal = lease is not None and lease.holder == holder and lease.expires_ms > now_ms
        token = lease.token + (not is_renewal) if lease is not None else 1
        taken = Lease(name, holder, token, now_ms + ttl_ms)
        return Result([taken], taken, deadlines=[expiry(taken, now_ms)])

    def release(self, name: str, token: int) -> Result[Lease, bool]:
        """Release a lease. Returns False if the token is not that of the lease."""
        lease = self.leases.get(name)
        if lease is None or lease.token != token or not lease.holder:
            return Result((), False)
        return Result([Lease(name, "", token, lease.expires_ms)], True, deadlines=[Deadline((name,))])

    def holder(self, name: str, offset: int) -> str:
        """Return the holder that is committed at `offset`, or an empty string."""
        lease = self.leases.get_at(name, offset)
        return lease.holder if lease is not None else ""

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: Lease, /) -> None:
        self.leases.put(record.name, record)

    def on_loaded(self, _image: ClusterImage, now_ms: int, /) -> Result[Lease, None]:
        return Result(deadlines=[expiry(lease, now_ms) for lease in self.leases.values() if lease.holder])


def expiry(lease: Lease, now_ms: int) -> Deadline:
    return Deadline((lease.name,), lease.expires_ms - now_ms, Operation(expire, lease.name))


def expire(shard: LeaseShard, now_ms: int, name: str) -> Result[Lease, None]:
    # The current state decides, not the state when the deadline began.
    lease = shard.leases.get(name)
    if lease is None or not lease.holder:
        return Result()
    if lease.expires_ms > now_ms:
        return Result(deadlines=[expiry(lease, now_ms)])
    return Result([Lease(name, "", lease.token, lease.expires_ms)])


def main(data_dir: Path) -> None:
    with hosted(LeaseShard, LeaseSerde(), data_dir=data_dir, threads=2) as host:
        print(host.write(0, lambda shard, now_ms: shard.acquire("leader", "ann", 60_000, now_ms)))
        print(host.write(0, lambda shard, now_ms: shard.acquire("leader", "bob", 60_000, now_ms)))
    with hosted(LeaseShard, LeaseSerde(), data_dir=data_dir, threads=0) as host:
        print("after a restart:", host.query(0, lambda shard, offset: shard.holder("leader", offset)))
        print("released:", host.write(0, lambda shard, _: shard.release("leader", 1)))
        print(host.write(0, lambda shard, now_ms: shard.acquire("leader", "bob", 60_000, now_ms)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
