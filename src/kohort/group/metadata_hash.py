"""
The metadata hash of a group: a change of it tells that the topics of the group changed.

The hash of a topic covers its id, its name, and the racks of each partition. The hash of a group combines those of its topics
in the order of their names. Texts are UTF-16 units followed by their number; integers are little-endian.

Source: Kafka Utils.computeTopicHash, computeGroupHash (XXH3 with 64 bits).
"""

from collections.abc import Iterable
from struct import pack
from typing import Final

from xxhash import xxh3_64_intdigest

from kohort.model.image import ClusterImage, TopicImage

_VERSION: Final = b"\x00"
NO_TOPICS_HASH: Final = 0


class TopicHashes:
    """The hashes of the topics of one shard's groups, kept while a topic stays as it is. There is at most one of each name."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def group_hash(self, topics: Iterable[str], image: ClusterImage) -> int:
        """The hash of a group that is subscribed to these topics: 64 bits, signed. Topics that do not exist do not count."""
        hashes: dict[str, int] = {}
        for name in topics:
            topic = image.topic(name)
            if topic is None:
                self._known.pop(name, None)
                continue
            known = self._known.get(name)
            if known is None or known[0] is not topic:
                known = self._known[name] = (topic, _topic_hash(topic, image))
            hashes[name] = known[1]
        if not hashes:
            return NO_TOPICS_HASH
        names = sorted(hashes, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return _signed(xxh3_64_intdigest(b"".join([pack("<Q", hashes[name]) for name in names])))

    def forget(self, topics: Iterable[TopicImage]) -> None:
        """Drop the hashes of topics that no longer exist."""
        for topic in topics:
            self._known.pop(topic.name, None)


def _topic_hash(topic: TopicImage, image: ClusterImage) -> int:
    count = topic.partition_count
    parts = [_VERSION, topic.topic_id.bytes[7::-1], topic.topic_id.bytes[:7:-1], _text(topic.name), pack("<i", count)]
    if not image.has_racks:
        # A topic may have thousands of partitions, and one step of the event loop hashes it.
        parts.append(pack(f"<{count}i", *range(count)))
        return xxh3_64_intdigest(b"".join(parts))
    for partition in range(count):
        parts.append(pack("<i", partition))
        racks = sorted(image.racks(topic.topic_id, partition))
        parts += [pack("<i", _units(rack)) + _text(rack) for rack in racks]
    return xxh3_64_intdigest(b"".join(parts))


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + pack("<i", _units(text))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
