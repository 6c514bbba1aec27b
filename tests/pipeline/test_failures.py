"""What goes wrong in the first hour is a sentence, wherever it went wrong: here, in a worker, in the JVM."""

import errno
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.failures import sentence

FULL = "no space is left on the device, of the tables or of temporary files (Spark: SPARK_LOCAL_DIRS, else TMPDIR)"
WORKER_IS_LATE = (
    "a Python worker did not start within the 10 s that Spark gives it: the machine is busy, or its memory is short"
)
JVM = (
    "Spark's JVM has ended: it was killed, or the memory of the machine is short (SPARK_DRIVER_MEMORY sets its heap; the"
    " system's log names processes that it killed)"
)
WORKER = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File ..., line 3, in read\n"
)

# fmt: off
FAILURES: list[tuple[Exception, str | None]] = [
    # what went wrong                                                                     what is told
    (ConfigError("t-0 has no leader now"),                                                "t-0 has no leader now"),
    (PermissionError(errno.EACCES, "Permission denied", "/out/x"),                        "/out/x: Permission denied"),
    (OSError(errno.EIO, "Input/output error"),                                            "Input/output error"),
    (OSError(errno.ENOSPC, "No space left on device", "/out/x"),                          FULL),
    (RuntimeError(f"{WORKER}kohort.model.errors.ConfigError: t-0 gives nothing\n at..."), "t-0 gives nothing"),
    (RuntimeError(f"{WORKER}kohort.client.connection.RefusedError: nobody is there\n at"), "nobody is there"),
    (RuntimeError(f"{WORKER}PermissionError: [Errno 13] Permission denied: '/a b/c.log'\n"), "/a b/c.log: Permission denied"),
    (RuntimeError("Job aborted.\njava.io.IOException: No space left on device\n\tat java.base/..."), FULL),
    (RuntimeError("[STREAM_FAILED] ... Python worker failed to connect back. SQLSTATE: XXKST"), WORKER_IS_LATE),
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),                    JVM),
    (Py4JNetworkError("Answer from Java side is empty"),                                  JVM),
    # A reader of ours who has gone away, and what is our own fault.
    (BrokenPipeError(errno.EPIPE, "Broken pipe"),                                         None),
    (RuntimeError(f"{WORKER}KeyError: 'records_lost'"),                                   None),
    (KeyError("records_lost"),                                                            None),
]
# fmt: on


@pytest.mark.parametrize(("failure", "told"), FAILURES)
def test_sentences(failure: Exception, told: str | None) -> None:
    assert sentence(failure) == told


@pytest.mark.spark
def test_a_segment_that_cannot_be_read(spark: Any, tmp_path: Path) -> None:
    """Here a directory has its name; what belongs to another user fails just so."""
    segment = tmp_path / f"{CONSUMER_OFFSETS}-0" / f"{0:020}.log"
    segment.mkdir(parents=True)
    told = f"{segment} cannot be read: Is a directory"
    with pytest.raises(ConfigError) as refused:
        mapped(str(segment))
    assert str(refused.value) == told
    with pytest.raises(Exception, match="Is a directory") as failed:
        spark.read.format("kohort").load(str(tmp_path)).toArrow()
    assert sentence(failed.value) == told
