"""
End-of-transaction markers: control records of type ABORT (0) and COMMIT (1). Other control records are skipped.

Source: Kafka ControlRecordType, EndTransactionMarker.
"""

from typing import Any

import numpy as np

from kohort.pipeline.decode.records import Records
from kohort.pipeline.decode.schemas import ABORT, COMMIT
from kohort.wire.columnar.vectors import big_endian

_TYPES = {0: ABORT, 1: COMMIT}
_KEY_BYTES = 4
_VALUE_BYTES = 6


def decode(records: Records) -> list[dict[str, Any]]:
    """Markers as rows of the schema: their own columns, and `row`, the index into `records`."""
    data = records.window.data
    readable = (records.key_bytes >= _KEY_BYTES) & (records.value_bytes >= _VALUE_BYTES)
    types = big_endian(data, np.where(readable, records.key_at + 2, 0), "i2")
    epochs = big_endian(data, np.where(readable, records.value_at + 2, 0), "i4")
    return [
        {"row": row, "control": _TYPES[int(types[row])], "coordinator_epoch": int(epochs[row])}
        for row in np.flatnonzero(readable).tolist()
        if int(types[row]) in _TYPES
    ]
