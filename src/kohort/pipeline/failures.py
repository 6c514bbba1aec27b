"""
Failures as sentences for an operator, where the operator can repair the cause.

A failure in a Python worker arrives as Spark's exception with the worker's traceback in its text; a failure in the JVM, with
the JVM's. A missing read permission or a full disk needs neither.
"""

import re

from kohort.model.errors import ConfigError, WireError

_OURS = re.compile(r"^(?:kohort\.model\.errors\.)?(?:ConfigError|WireError): (?P<sentence>.+)$", re.MULTILINE)
_SYSTEM = re.compile(r"^\w+Error: \[Errno \d+\] (?P<problem>[^:\n]+): '(?P<path>[^\n]+)'$", re.MULTILINE)
_FULL = "No space left on device"
_FULL_ADVICE = "no space is left on the device, of the tables or of Spark's temporary files (SPARK_LOCAL_DIRS)"


def sentence(failure: Exception) -> str | None:
    """Return a sentence for the operator; None if the failure is a defect of Kohort."""
    if isinstance(failure, ConfigError | WireError):
        return str(failure)
    text = str(failure)
    if _FULL in text:
        return _FULL_ADVICE
    if isinstance(failure, OSError):
        return None if isinstance(failure, BrokenPipeError) else _of_system(failure)
    if (ours := _OURS.search(text)) is not None:
        return ours["sentence"]
    system = _SYSTEM.search(text)
    return None if system is None else f"{system['path']}: {system['problem']}"


def _of_system(failure: OSError) -> str:
    problem = failure.strerror or str(failure)
    return problem if failure.filename is None else f"{failure.filename}: {problem}"
