"""The imports of a start; packages that are imported lazily can still be imported; and messages where they are missing."""

import subprocess
import sys

import pytest

from kohort.wire import messages, readers
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.headers import read_response_header

CODEC = """
import sys
from kohort.wire import batches, messages, native_records, readers
read, heartbeat = readers.request_reader(12, 4), bytes((2, 103, 0, 0, 0, 0, 2, 109, 0, 0))
for _ in range(readers.FIRST_READS):
    first = read(heartbeat, 0)
had_kio = "kio._kio_native" in sys.modules
later = read(heartbeat, 0)
batches.encode_batch([(b"key", b"value")], 5)
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", CODEC + code], capture_output=True, text=True, check=True).stdout


def test_a_start_imports_no_clients_test_tools_or_schemas() -> None:
    imported = set(run("print(*sys.modules)").split())
    for needless in ("hypothesis", "aiokafka.client", "aiokafka.consumer", "crc32c._cli", "kio.schema.heartbeat"):
        assert needless not in imported


def test_the_first_messages_of_a_version_are_read_without_kio() -> None:
    out = run(
        "print(had_kio, 'kio._kio_native' in sys.modules, first == later, first.group_id, type(first) is type(later))"
    )
    assert out.split() == ["False", "True", "True", "g", "True"]


def test_the_packages_are_whole_for_whoever_imports_them() -> None:
    out = run(
        "import aiokafka, crc32c, hypothesis\n"
        "import aiokafka.errors as errors\n"
        "from aiokafka import AIOKafkaConsumer\n"
        "print(aiokafka.AIOKafkaProducer.__name__, AIOKafkaConsumer.__name__, aiokafka.errors is errors)\n"
        "print(crc32c.crc32c(b'123456789') == 0xE3069283, crc32c.__version__ != '', hypothesis.given.__name__)\n"
        "print(issubclass(native_records.CorruptRecordException, aiokafka.errors.KafkaError))\n"
    )
    assert out.split() == ["AIOKafkaProducer", "AIOKafkaConsumer", "True", "True", "True", "given", "True"]


def test_messages_are_read_where_kio_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on executors of a Spark cluster, which read the logs of a running cluster."""
    partition = messages.MetadataResponsePartition(partition_index=3, leader_id=1, replica_nodes=(1, 2))
    topic = messages.MetadataResponseTopic(name="orders", partitions=[partition], is_internal=True)
    response = messages.MetadataResponse(topics=[topic], cluster_id="c")
    frame = response_encoder(ApiKey.METADATA, 12)(7, response)
    _, offset = read_response_header(frame[4:], ApiKey.METADATA, 12)
    monkeypatch.setitem(sys.modules, "kohort.wire.native", None)
    read = readers.response_reader.__wrapped__(ApiKey.METADATA, 12)
    assert read(frame[4:], offset) == response
