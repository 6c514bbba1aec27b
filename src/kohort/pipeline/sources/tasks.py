"""The body of every task, of a batch and of a stream: decode a range with the options of the source."""

from collections.abc import Iterator

import pyarrow as pa

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.compact import LatestByKey
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.records import WINDOW_BYTES
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import RangeTask


def decoder(options: SourceOptions, *, window_bytes: int = WINDOW_BYTES) -> Decoder:
    """Return the decoder for the options of a source."""
    return Decoder(
        kinds=options.kinds,
        schema=schemas.subset(options.columns),
        window_bytes=window_bytes,
        from_ms=options.from_ms,
        to_ms=options.to_ms,
        fold=LatestByKey() if options.compact else None,
    )


def read_task(options: SourceOptions, task: RangeTask, *, window_bytes: int = WINDOW_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range."""
    decoding = decoder(options, window_bytes=window_bytes)
    note = Note(options.progress_directory, task.task)
    yield from task.read(decoding, note)
    for batch in decoding.rest():
        note.add(rows=batch.num_rows)
        yield batch
