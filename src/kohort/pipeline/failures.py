"""
Failures as sentences for an operator, where the operator can repair the cause.

A failure in a Python worker arrives as Spark's exception with the worker's traceback in its text; a failure in the JVM, with
the JVM's. A missing read permission or a full disk needs neither.
"""

import re

from kohort.model.errors import ConfigError, WireError

_OURS = re.compile(
    r"^(?:(?:kohort\.model\.errors\.)?(?:ConfigError|WireError)|kohort\.(?:client|pipeline)\.[\w.]+Error): (?P<sentence>.+)$",
    re.MULTILINE,
)
"""An error for the operator, or one of its kinds."""
_SYSTEM = re.compile(r"^\w+Error: \[Errno \d+\] (?P<problem>[^:\n]+): '(?P<path>[^\n]+)'$", re.MULTILINE)
_FULL = "No space left on device"
_FULL_ADVICE = (
    "no space is left on the device, of the tables or of temporary files (Spark: SPARK_LOCAL_DIRS, else TMPDIR)"
)
_LOCAL_ENGINE = "OutOfMemoryException"
"""DuckDB's exception, which is also raised if its temporary files may not grow further."""
_LOCAL_ADVICE = (
    "the memory of the local engine is too small for this table, or its temporary files take more than 90% of the disk;"
    " ask for one --group, or use --engine spark"
)
_NO_WORKER = "Python worker failed to connect back"
"""Spark gives the Python process of a streaming source 10 s for its start (a constant in PythonWorkerFactory)."""
_NO_WORKER_ADVICE = (
    "a Python worker did not start within the 10 s that Spark gives it: the machine is busy, or its memory is short"
)
_JVM_ERRORS = frozenset({"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError"})
"""Without a sentence of ours, these come from the connection to the JVM."""
_JVM_ADVICE = (
    "Spark's JVM has ended: it was killed, or the memory of the machine is short (SPARK_DRIVER_MEMORY sets its heap; the"
    " system's log names processes that it killed)"
)


def sentence(failure: Exception) -> str | None:
    """Return a sentence for the operator; None if the failure is a defect of Kohort."""
    if isinstance(failure, ConfigError | WireError):
        return str(failure)
    text = str(failure)
    if _FULL in text:
        return _FULL_ADVICE
    if type(failure).__name__ == _LOCAL_ENGINE:
        return _LOCAL_ADVICE
    if type(failure).__name__ in _JVM_ERRORS:
        return _JVM_ADVICE
    if _NO_WORKER in text:
        return _NO_WORKER_ADVICE
    if isinstance(failure, OSError):
        return None if isinstance(failure, BrokenPipeError) else _of_system(failure)
    if (ours := _OURS.search(text)) is not None:
        return ours["sentence"]
    system = _SYSTEM.search(text)
    return None if system is None else f"{system['path']}: {system['problem']}"


def _of_system(failure: OSError) -> str:
    problem = failure.strerror or str(failure)
    return problem if failure.filename is None else f"{failure.filename}: {problem}"
