"""The word count of Kafka Streams with `exactly_once_v2`: no word is counted twice or lost, whatever is killed."""

from collections import defaultdict
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.conftest import new_topic
from tests.clients.jvm import Jvm
from tests.clients.transactions.conftest import Broker
from tests.clients.transactions.consumers import END, write_end
from tests.clients.transactions.streams import WordCount
from tests.clients.waiting import PATIENCE_S, wait_until

WORDS = ("kohort", "kafka", "streams", "exactly", "once")
LINES = 40
WORDS_PER_LINE = 3


class Counts:
    """The counts of each word in the sink, in the order of a `read_committed` consumer."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 2})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.by_word: dict[str, list[int]] = defaultdict(list)
        self.has_ended = False

    def poll(self) -> int:
        """The number of counts so far."""
        for message in self._consumer.consume(1_000, 0.1):
            if message.error() is not None:
                continue
            if message.key() is None:
                assert message.value().decode() == END
                self.has_ended = True
            else:
                self.by_word[message.key().decode()].append(int.from_bytes(message.value(), "big"))
        return sum(map(len, self.by_word.values()))


def test_words_are_counted_exactly_once(own_broker: Broker, jvm: Jvm, tmp_path: Path, rng: Random) -> None:
    """The application is killed, the broker is killed under the next one. Each word's counts are 1, 2, 3 and so on."""
    source, sink = new_topic(own_broker.bootstrap, 2, {}), new_topic(own_broker.bootstrap, 1, {})
    state = tmp_path / "state"
    counts = Counts(own_broker.bootstrap, sink)
    written: list[str] = []
    with Jvm() as killed:
        WordCount(killed, own_broker.bootstrap, source, sink, state)
        written += _write(own_broker.bootstrap, source, rng)
        wait_until(lambda: counts.poll() > 0, what="the first application writes counts")
    with WordCount(jvm, own_broker.bootstrap, source, sink, state) as streams:
        written += _write(own_broker.bootstrap, source, rng)
        wait_until(lambda: counts.poll() == len(written), what=lambda: f"the second one goes on; it is {streams.state}")
        own_broker.kill()
        own_broker.start()
        written += _write(own_broker.bootstrap, source, rng)
        wait_until(lambda: counts.poll() == len(written), what=lambda: f"it survives the broker; it is {streams.state}")
    write_end(own_broker.bootstrap, sink, 0)
    wait_until(lambda: counts.poll() and counts.has_ended, what="the end of the sink")
    assert counts.by_word == {word: list(range(1, 1 + written.count(word))) for word in set(written)}


def _write(bootstrap: str, topic: str, rng: Random) -> list[str]:
    """Append lines, and return their words."""
    lines = [rng.choices(WORDS, k=WORDS_PER_LINE) for _ in range(LINES)]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number, line in enumerate(lines):
        producer.produce(topic, " ".join(line), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    return [word for line in lines for word in line]
