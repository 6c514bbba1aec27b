"""What every test may use."""

import os

LONG = bool(os.environ.get("KOHORT_LONG"))
"""Whether the long versions of crash, fuzz and simulation tests run (`make test-long`)."""
