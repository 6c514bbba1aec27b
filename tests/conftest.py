"""What holds for every test."""

import os

import pytest
from hypothesis import HealthCheck, settings

from kohort.compiled import is_compiled

LONG = bool(os.environ.get("KOHORT_LONG"))
"""Whether the long versions of crash, fuzz and simulation tests run (`make test-long`)."""

watches_calls = pytest.mark.skipif(
    is_compiled(), reason="it puts itself between calls, which the compiled build does not let"
)

# How long an example takes depends on what else the machine does; a test says what is right, not how fast. The short versions
# try the same examples every time, so that a change is judged by what it did; the long ones look for new ones.
settings.register_profile("kohort", deadline=None, derandomize=not LONG, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kohort")
