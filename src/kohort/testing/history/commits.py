"""Members and simple consumers that commit: forward, again, back, far beyond; and offsets that are deleted."""

from dataclasses import dataclass, field

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.testing.history import values
from kohort.testing.history.world import World

_METADATA = ("", "", "", "m\u00e9ta \N{SNOWMAN}", "x" * 200)


@dataclass(slots=True)
class Committer:
    """A group's offsets: where it stands in each place it has committed."""

    world: World
    group: str
    committed: dict[tuple[str, int], int] = field(default_factory=dict)

    def act(self, places: list[tuple[str, int]]) -> None:
        """Commit some of `places`, now and then delete what was committed."""
        chance = self.world.chance
        if self.committed and chance.random() < 0.08:
            self._delete()
            return
        chosen = [place for place in places if chance.random() < 0.6]
        records = []
        for topic, partition in chosen:
            end = self.world.logs[topic, partition].next_offset
            here = self.committed.get((topic, partition), 0)
            forward = min(here + chance.randint(0, 6), end)
            offset = chance.choice((forward, forward, forward, forward, here, chance.randint(0, end), end))
            self.committed[topic, partition] = offset
            topic_id = self.world.topic_id(topic) if chance.random() < 0.8 else None
            metadata = chance.choice(_METADATA)
            records.append(
                values.offset_commit(
                    self.group, topic, partition, offset, at_ms=self.world.now_ms, metadata=metadata, topic_id=topic_id
                )
            )
        if records:
            self.world.write(CONSUMER_OFFSETS, records)

    def _delete(self) -> None:
        """Expired, deleted, or gone with their group."""
        chance = self.world.chance
        chosen = [place for place in self.committed if chance.random() < 0.7]
        records = [values.offset_commit(self.group, *place, None, at_ms=self.world.now_ms) for place in chosen]
        for place in chosen:
            del self.committed[place]
        if records:
            self.world.write(CONSUMER_OFFSETS, records)
