"""Offset commits of groups: forward, repeated, backward and far ahead; and deleted offsets."""

from dataclasses import dataclass, field

from kohort.model.ids import CONSUMER_OFFSETS
from kohort_lab.history import values
from kohort_lab.history.world import World

_METADATA = ("", "", "", "m\u00e9ta \N{SNOWMAN}", "x" * 200)


@dataclass(slots=True)
class Committer:
    """The committed offsets of a group by partition."""

    world: World
    group: str
    committed: dict[tuple[str, int], int] = field(default_factory=dict)

    def act(self, topic_partitions: list[tuple[str, int]]) -> None:
        """Commit offsets for some of `topic_partitions`; sometimes delete committed offsets."""
        rng = self.world.rng
        if self.committed and rng.random() < 0.08:
            self._delete()
            return
        chosen = [topic_partition for topic_partition in topic_partitions if rng.random() < 0.6]
        records = []
        for topic, partition in chosen:
            end = self.world.logs[topic, partition].next_offset
            here = self.committed.get((topic, partition), 0)
            forward = min(here + rng.randint(0, 6), end)
            offset = rng.choice((forward, forward, forward, forward, here, rng.randint(0, end), end))
            self.committed[topic, partition] = offset
            topic_id = self.world.topic_id(topic) if rng.random() < 0.8 else None
            metadata = rng.choice(_METADATA)
            records.append(
                values.offset_commit(
                    self.group, topic, partition, offset, at_ms=self.world.now_ms, metadata=metadata, topic_id=topic_id
                )
            )
        if records:
            self.world.write(CONSUMER_OFFSETS, records)

    def _delete(self) -> None:
        """Delete offsets, as expiry and OffsetDelete do."""
        rng = self.world.rng
        chosen = [topic_partition for topic_partition in self.committed if rng.random() < 0.7]
        records = [
            values.offset_commit(self.group, *topic_partition, None, at_ms=self.world.now_ms)
            for topic_partition in chosen
        ]
        for topic_partition in chosen:
            del self.committed[topic_partition]
        if records:
            self.world.write(CONSUMER_OFFSETS, records)
