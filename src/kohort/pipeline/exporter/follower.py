"""Follows the logs of a running cluster, with connections that stay open between polls."""

from collections.abc import Collection

import pyarrow as pa

from kohort.client.addresses import Address
from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT, Security
from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Slice
from kohort.pipeline.exporter.source import FAILURES, Fetched, Source
from kohort.pipeline.exporter.transactions import OpenProducer
from kohort.pipeline.sources import live
from kohort.pipeline.sources.live import LiveLog
from kohort.wire import messages
from kohort.wire.apis import ApiKey

_SEGMENT = "fetched"


class Cluster(Source):
    """A running cluster."""

    def __init__(self, source: str, security: Security = PLAINTEXT) -> None:
        """
        Args:
            source: `kafka://HOST:PORT`, several brokers separated by commas.
        """
        super().__init__()
        self.source = source
        self.security = security
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = live.open_client(self.source, self.security)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def logs(self, topics: Collection[str] | None = None) -> list[LiveLog]:
        return live.describe_logs(self.client, topics=topics, on_problem=self.problems.append)

    def cluster_id(self) -> str:
        response = self.client.send(ApiKey.METADATA, messages.MetadataRequest(topics=()))
        return response.cluster_id or ""

    def stable_ends(self, logs: Collection[LiveLog]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for leader in sorted({(log.host, log.port) for log in logs}):
            listed = [(log.topic, log.partition) for log in logs if (log.host, log.port) == leader]
            try:
                found |= live.list_offsets(
                    self.client,
                    Address(*leader),
                    listed,
                    live.LATEST,
                    is_committed=True,
                    on_problem=self.problems.append,
                )
            except FAILURES as exc:
                self.failed(exc)
        return found

    def open_transactions(self, logs: Collection[LiveLog]) -> list[OpenProducer]:
        """Return the transactions that are open in some logs, as their leaders tell (DescribeProducers)."""
        found: list[OpenProducer] = []
        for log in logs:
            if self.is_down(log):
                continue
            request = messages.DescribeProducersRequest(
                topics=[
                    messages.DescribeProducersRequestTopicRequest(name=log.topic, partition_indexes=[log.partition])
                ]
            )
            try:
                response = self.client.send(ApiKey.DESCRIBE_PRODUCERS, request, at=Address(log.host, log.port))
            except FAILURES as exc:
                self.failed(exc, log)
                continue
            found += [
                OpenProducer(TopicPartition(log.topic, log.partition), producer.producer_id, producer.last_timestamp)
                for topic in response.topics
                for one in topic.partitions
                for producer in one.active_producers
                if producer.current_txn_start_offset >= 0
            ]
        return found

    def read(self, log: LiveLog, at: int, decoder: Decoder) -> tuple[list[pa.RecordBatch], int | None]:
        piece, following, _ = self.fetch(log, at)
        if not piece:
            return [], None
        segment = Segment(log.topic, log.partition, at, _SEGMENT, len(piece))
        # A fetched batch may begin before the offset: it was read already.
        return list(decoder.decode(piece, segment, Slice(at, following, has_tail=True))), following

    def fetch(self, log: LiveLog, at: int, *, bytes_max: int = live.FETCH_BYTES, is_committed: bool = False) -> Fetched:
        fetched = live.fetch_partition(self.client, log, at, bytes_max=bytes_max, is_committed=is_committed)
        if fetched is None:
            return Fetched(b"", at)
        piece = bytes(fetched.records or b"")
        whole, following = live.whole_batches(piece)
        return Fetched(piece[:whole], following, fetched.aborted_transactions or ())
