"""The broker compresses at the level that a topic or the broker has. Source: KIP-390; Kafka LogConfig.compression."""

from typing import Any

import pytest

from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.compression import Codec, compress, decompress
from tests.broker.configs.test_configs import BROKER, SET, alter
from tests.broker.harness import Harness, batch

VALUES = [b"%d of some thousand orders, and their customers" % (number * number % 1000) for number in range(1200)]
PLAIN = batch(*VALUES)[HEADER_BYTES:]

LEVELS = {
    Codec.GZIP: (None, -1, 1, 9),
    Codec.LZ4: (None, 1, 9, 17),
    Codec.ZSTD: (None, -7, 3, 22),
}


@pytest.mark.parametrize("codec", LEVELS)
def test_the_level_of_a_topic(codec: Codec) -> None:
    harness = Harness()
    name = codec.name.lower()
    sizes = []
    for number, level in enumerate(LEVELS[codec]):
        configs: dict[str, Any] = {"compression_type": name} | (
            {} if level is None else {f"compression_{name}_level": str(level)}
        )
        harness.create(f"t{number}", **configs)
        stored = written(harness, f"t{number}")
        assert stored == compress(PLAIN, codec, level)
        assert decompress(stored, codec) == PLAIN
        sizes.append(len(stored))
    assert sizes[0] == sizes[LEVELS[codec].index({Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}[codec])]
    assert len(set(sizes)) == len(sizes) - 1


def test_a_new_level_of_the_broker_counts_for_the_next_batch() -> None:
    harness = Harness(compression_type="gzip")
    harness.create("t")
    before = written(harness, "t")
    assert alter(harness, ("compression.gzip.level", SET, "1"), kind=BROKER, name="") == 0
    assert written(harness, "t") == compress(PLAIN, Codec.GZIP, 1) != before


def test_a_batch_of_the_same_codec_stays_as_its_producer_made_it() -> None:
    harness = Harness()
    harness.create("t", compression_type="gzip", compression_gzip_level="9")
    sent = batch(*VALUES, compression=Codec.GZIP)
    (answer,) = harness.produce("t", {0: sent})
    assert answer.error_code == 0
    assert last_batch(harness, "t") == sent[HEADER_BYTES:]


def written(harness: Harness, topic: str) -> bytes:
    (answer,) = harness.produce(topic, {0: batch(*VALUES)})
    assert answer.error_code == 0, answer
    return last_batch(harness, topic)


def last_batch(harness: Harness, topic: str) -> bytes:
    partition = harness.broker.partitions.find(topic, 0)
    assert partition is not None
    log = partition.log
    return bytes(log.read(log.end_offset - 1, bytes_max=1 << 20))[HEADER_BYTES:]
