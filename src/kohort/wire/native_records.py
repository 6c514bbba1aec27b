"""
aiokafka's native record batches, imported without the rest of that package.

`kohort.wire.batches` imports this module for the first batch: 20 million instructions, which a start does without.
"""

from kohort.wire.native import import_lazily

for _package in ("aiokafka", "aiokafka.record", "aiokafka.record._crecords"):
    import_lazily(_package)

from aiokafka.errors import CorruptRecordException  # noqa: E402
from aiokafka.record._crecords.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder  # noqa: E402

__all__ = ["CorruptRecordException", "DefaultRecordBatch", "DefaultRecordBatchBuilder"]
