"""
Writes the frames that the fuzzer sends in every run, and changes:

    python -m tests.crash.write_fuzz_corpus

Frames that have found a defect belong here, each with its name.
"""

import base64
import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path

from kohort.model.limits import UNORDERED_RECORDS_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.compression import Codec, compress
from kohort.wire.encoders import request_encoder
from tests.tables.produced_cases import CASES
from tests.wire.hostile_batches import batch_of, corpus, equal_between_ends

CORPUS = Path(__file__).parents[1] / "data" / "fuzz" / "corpus.jsonl.gz"
NOW_MS = 1_750_000_000_000
_FRAME_BYTES_MAX = 100_000


def frames() -> Iterator[tuple[str, bytes]]:
    """Name and frame."""
    for hostile in corpus(zeros_bytes=16 << 20):
        if len(hostile.packed) < _FRAME_BYTES_MAX:
            batch = batch_of(hostile.packed, hostile.codec, 1)
            yield f"{hostile.codec.name}: {hostile.name}", produce(batch)
    equal = compress(equal_between_ends(16, UNORDERED_RECORDS_MAX), Codec.ZSTD)
    yield "equal records between rising ones", produce(batch_of(equal, Codec.ZSTD, 16 * UNORDERED_RECORDS_MAX))
    for name, case in CASES.items():
        for send in case.sends[:1]:
            yield f"Produce: {name}", produce(send(NOW_MS))
    yield "Fetch with a null cluster id", fetch_with_tags(b"\x01\x00\x01\x00")
    yield "Fetch with an unknown tag", fetch_with_tags(b"\x01\x7f\x03abc")
    yield "Fetch with a tag of 2^31 - 1 bytes", fetch_with_tags(b"\x01\x7f\xff\xff\xff\xff\x07")
    resource = m.DescribeConfigsResource(resource_type=2, resource_name="fuzz-0")
    described = m.DescribeConfigsRequest(resources=[resource] * 2000)
    yield "DescribeConfigs of one topic, 2000 times", request_encoder(ApiKey.DESCRIBE_CONFIGS, 4)(1, "fuzz", described)
    groups = m.DescribeGroupsRequest(groups=["fuzz-group-0"] * 5000)
    yield "DescribeGroups of one group, 5000 times", request_encoder(ApiKey.DESCRIBE_GROUPS, 5)(1, "fuzz", groups)
    partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequestTopic(name="fuzz-0", partitions=[partition])
    forever = m.OffsetCommitRequest(
        group_id="fuzz-group-0", generation_id_or_member_epoch=-1, retention_time_ms=(1 << 63) - 1, topics=[topic]
    )
    yield "OffsetCommit of the longest retention", request_encoder(ApiKey.OFFSET_COMMIT, 2)(1, "fuzz", forever)
    yield "a client id of length -2", sized(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -2) + b"\0\0\0\0")
    yield "ApiVersions -1", sized(struct.pack(">hhih", ApiKey.API_VERSIONS, -1, 1, -1))
    yield "a boolean of 7", sized(struct.pack(">hhih", ApiKey.METADATA, 4, 1, -1) + b"\0\0\0\0\7")


def produce(batch: bytes) -> bytes:
    data = m.ProduceRequestPartitionProduceData(index=0, records=batch)
    topic = m.ProduceRequestTopicProduceData(name="fuzz-0", partition_data=[data])
    return request_encoder(ApiKey.PRODUCE, 9)(1, "fuzz", m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]))


def fetch_with_tags(tags: bytes) -> bytes:
    request = m.FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1)
    return sized(request_encoder(ApiKey.FETCH, 13)(1, "fuzz", request)[4:-1] + tags)


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def main() -> None:
    lines = [json.dumps({"name": name, "frame": base64.b64encode(frame).decode()}) for name, frame in frames()]
    CORPUS.parent.mkdir(parents=True, exist_ok=True)
    CORPUS.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


if __name__ == "__main__":
    main()
