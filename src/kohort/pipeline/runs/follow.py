"""
Tables that follow a source, with Structured Streaming.

The query plans micro-batches: its checkpoint holds the end of each batch before the batch runs (`offsets/<batch>`). The sink is
a `Run`: it reads from the position in `current.json` to that end, and publishes tables and position together. Spark repeats a
batch that it did not see complete; if the batch was published, nothing is left to read. So every record counts once, whenever
the driver or a worker is killed. The rows do not pass through the query: a run's own tasks write them, see `runs.writing`.

A topic that was created again is followed from its first offset, see `incarnations`.

Source: Spark, MicroBatchExecution and OffsetSeqLog (the checkpoint).
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.runs.run import Run, RunOutcome
from kohort.pipeline.sources.streams.offsets import StreamPosition

CHECKPOINT = "stream"
"""The directory of the checkpoint, beside the versions."""
_OFFSETS = "offsets"
RECORDS_MAX = 5_000_000
"""Records of a micro-batch: what a backlog is cut into, by PySpark 4.2 and newer."""
_BATCHES_KEPT = "10"

OnOutcome = Callable[[RunOutcome], None]


@dataclass(slots=True)
class Follower:
    """
    Follows a source into the directory of a run.

    Attributes:
        on_outcome: called after each micro-batch.
        publishing: held during a micro-batch; who stops the query takes it first, so that the batch is not cut off.
        batches: the micro-batches so far.
    """

    run: Run
    on_outcome: OnOutcome
    records_max: int = RECORDS_MAX
    publishing: threading.Lock = field(default_factory=threading.Lock)
    batches: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.run.out / CHECKPOINT

    def start(self, spark: Any, trigger: Mapping[str, Any]) -> Any:
        """
        Start the query, and return it.

        Args:
            trigger: the arguments of Spark's `trigger`.
        """
        from kohort.pipeline.sources.streams.stream import has_read_limits

        spark.conf.set("spark.sql.streaming.minBatchesToRetain", _BATCHES_KEPT)
        options = {"topics": "*", "failOnDataLoss": "false"}
        if has_read_limits():
            options["maxRecordsPerTrigger"] = str(self.records_max)
        source = self.run.source
        frame = spark.readStream.format("kohort").options(**options, **source.options).load(source.path)
        writer = frame.writeStream.queryName("kohort-follow").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger).foreachBatch(self._publish).start()

    def _publish(self, _: Any, batch_id: int) -> None:
        with self.publishing:
            outcome = self.run.once(end_of_batch(self.checkpoint, batch_id))
            self.batches += 1
            self.on_outcome(outcome)


def end_of_batch(checkpoint: Path, batch_id: int) -> StreamPosition:
    """
    Read the end of a micro-batch from the checkpoint of a query with one source.

    Raises:
        ConfigError: the checkpoint is of another query.
    """
    path = checkpoint / _OFFSETS / str(batch_id)
    try:
        return StreamPosition.from_json(json.loads(path.read_text(encoding="utf-8").splitlines()[-1]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
        raise ConfigError(
            f"{path} does not hold the end of a micro-batch ({exc}); delete {checkpoint} to begin a new query: the tables stay,"
            " and nothing is read twice"
        ) from exc
