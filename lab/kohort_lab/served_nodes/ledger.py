"""What was acknowledged to clients, and the comparison with what is there."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

EXAMPLES_MAX = 20

Place = tuple[str, int]
"""Topic and partition."""


class Ledger:
    """
    Acknowledged records and commits. Safe in many threads.

    A record is `WRITER:NUMBER`, and written to one partition; a writer numbers its records from 0 on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[bytes, tuple[str, int, int | None]] = {}
        self._commits: dict[tuple[str, str, int], int] = {}
        self.unwanted: set[bytes] = set()
        """Records of transactions that were aborted with success."""
        self.whole: list[frozenset[bytes]] = []
        """Records of each transaction that was ended, or may have been."""
        self.commit_count = 0
        self.read: Counter[bytes] = Counter()
        self.mistakes: list[str] = []
        """What must not happen, in sentences."""

    def on_record(self, topic: str, partition: int, offset: int | None, value: bytes) -> None:
        """
        Args:
            offset: None if the client does not know it: librdkafka takes a batch for acknowledged when a later one is.
        """
        with self._lock:
            self._records[value] = (topic, partition, offset)

    def on_commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        with self._lock:
            self.commit_count += 1
            place = (group, topic, partition)
            self._commits[place] = max(self._commits.get(place, -1), offset)

    def on_read(self, value: bytes) -> None:
        with self._lock:
            self.read[value] += 1

    def on_mistake(self, sentence: str) -> None:
        with self._lock:
            if sentence not in self.mistakes:
                self.mistakes.append(sentence)

    @property
    def record_count(self) -> int:
        return len(self._records)

    def records(self) -> dict[bytes, tuple[str, int, int | None]]:
        """Topic, partition and offset of each record."""
        with self._lock:
            return dict(self._records)

    def commits(self, group: str) -> dict[Place, int]:
        """The highest acknowledged commit of each partition of a group."""
        with self._lock:
            return {(topic, partition): at for (of, topic, partition), at in self._commits.items() if of == group}


@dataclass
class Verdict:
    """The outcome of a comparison: numbers of records, and examples of what is wrong."""

    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    aborted_seen: int = 0
    torn: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.aborted_seen or self.torn)


def judge(ledger: Ledger, found: Mapping[Place, Sequence[tuple[int, bytes]]]) -> Verdict:
    """
    Compare the ledger with all records of all partitions.

    Args:
        found: offset and value of each record, in the order in which they were read.
    """
    records = ledger.records()
    verdict = Verdict(acknowledged=len(records))
    there: dict[bytes, list[tuple[str, int, int]]] = defaultdict(list)
    for place, pairs in found.items():
        for offset, value in pairs:
            there[value].append((*place, offset))
    for value, (topic, partition, known) in records.items():
        if not any(at[:2] == (topic, partition) and known in (None, at[2]) for at in there[value]):
            verdict.lost += 1
            verdict.examples.append(
                f"lost: {value!r} was acknowledged at {topic}-{partition}, {known}, and is at {there[value]}"
            )
    counts = Counter(value for pairs in found.values() for _, value in pairs)
    verdict.found = sum(counts.values())
    for value, count in counts.items():
        if count > 1:
            verdict.doubled += count - 1
            offsets = [offset for pairs in found.values() for offset, each in pairs if each == value]
            verdict.examples.append(f"doubled: {value!r} is there {count} times, at {offsets}")
        if value in ledger.unwanted:
            verdict.aborted_seen += 1
            verdict.examples.append(f"aborted, and there: {value!r}")
    for transaction in ledger.whole:
        found_count = sum(value in counts for value in transaction)
        if found_count not in (0, len(transaction)):
            verdict.torn += 1
            verdict.examples.append(f"torn: {found_count} of {len(transaction)} records of {min(transaction)!r}")
    for place, pairs in found.items():
        last: dict[bytes, int] = defaultdict(lambda: -1)
        for _, value in pairs:
            writer, _, number = value.rpartition(b":")
            if int(number) < last[writer]:
                verdict.reordered += 1
                verdict.examples.append(f"reordered: {value!r} of {place} behind {last[writer]}")
            last[writer] = int(number)
    del verdict.examples[EXAMPLES_MAX:]
    return verdict
