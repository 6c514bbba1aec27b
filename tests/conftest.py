"""What holds for every test."""

import os

from hypothesis import settings

LONG = bool(os.environ.get("KOHORT_LONG"))
"""Whether the long versions of crash, fuzz and simulation tests run (`make test-long`)."""

# How long an example takes depends on what else the machine does; a test says what is right, not how fast.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")
