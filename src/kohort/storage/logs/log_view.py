"""A view of a log on disk for one piece of work on another thread, which may wait for the disk."""

from typing import NoReturn

from kohort.storage.logs.disk_reads import DiskReads
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.segment_reads import SegmentReads


class LogView(DiskReads):
    """
    A log as it was when the view was made, for reading on any one thread. A failed read raises OSError.

    Args:
        generation: which of the log's sets of segments this is.
    """

    def __init__(self, log: DiskReads, segments: list[Segment], bases: list[int], generation: int) -> None:
        producers = ProducerStateManager()
        producers.first_unstable_offset = log.producers.first_unstable_offset
        super().__init__(
            log.topic_partition,
            log.topic_id,
            log.config,
            epochs=log.epochs.copy(),
            producers=producers,
            log_start_offset=log.log_start_offset,
            end_offset=log.end_offset,
        )
        self.high_watermark = log.high_watermark
        self.generation = generation
        self._segments, self._bases = segments, bases
        self._readers: dict[int, SegmentReads] = {}
        """The copies that were made for reading, by base offset."""
        if segments:
            self._reader_of(segments[-1])

    def _reader_of(self, segment: SegmentReads) -> SegmentReads:
        reader = self._readers.get(segment.base_offset)
        if reader is None:
            reader = self._readers[segment.base_offset] = segment.detached(self.config, self.epochs)
        return reader

    def _on_read_error(self, exc: OSError) -> NoReturn:
        raise exc

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers.values():
            reader.close()
