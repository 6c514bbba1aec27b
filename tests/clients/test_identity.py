"""What one client writes, every other reads: same bytes, same order, same timestamps, in every compression."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from tests.clients.conftest import Broker
from tests.clients.java_tools import JavaTools
from tests.clients.records import CODECS, RECORDS, Read
from tests.clients.speakers import Aiokafka, Java, KafkaPython, Librdkafka, Speaker

CLIENTS = ("librdkafka", "aiokafka", "kafka-python", "java")


@dataclass
class Conversation:
    """One topic per compression, to which every client that knows it has written the records in its turn."""

    bootstrap: str
    speakers: dict[str, Speaker]
    topics: dict[str, str]

    def writers(self, codec: str) -> list[str]:
        return [name for name, speaker in self.speakers.items() if codec in speaker.codecs]

    @cache  # noqa: B019
    def read(self, reader: str, codec: str) -> list[Read]:
        """All there is of one compression, as one client sees it."""
        count = len(RECORDS) * len(self.writers(codec))
        return self.speakers[reader].read(self.bootstrap, self.topics[codec], count)

    __hash__ = object.__hash__


@pytest.fixture(scope="module")
def conversation(broker: Broker, java: JavaTools, make_topic: Callable[..., str]) -> Conversation:
    speakers: tuple[Speaker, ...] = (Librdkafka(), Aiokafka(), KafkaPython(), Java(java))
    topics = {codec: make_topic() for codec in CODECS}
    made = Conversation(broker.bootstrap, dict(zip(CLIENTS, speakers, strict=True)), topics)
    for codec, topic in topics.items():
        for writer in made.writers(codec):
            made.speakers[writer].write(broker.bootstrap, topic, RECORDS, codec=codec)
    return made


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_a_record_is_the_same_for_every_client(conversation: Conversation, writer: str, reader: str) -> None:
    codecs = [codec for codec in CODECS if {writer, reader} <= set(conversation.writers(codec))]
    assert "none" in codecs
    for codec in codecs:
        first = conversation.writers(codec).index(writer) * len(RECORDS)
        timestamps = [each.timestamp_ms for each in conversation.read("librdkafka", codec)]
        expected = [Read(offset, timestamps[offset], record) for offset, record in enumerate(RECORDS, start=first)]
        assert conversation.read(reader, codec)[first : first + len(RECORDS)] == expected, codec


def test_every_compression_is_written_by_most() -> None:
    assert set(Librdkafka.codecs) == set(Aiokafka.codecs) == set(Java.codecs) == set(CODECS)
