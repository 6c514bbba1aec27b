"""What every test may use."""

import os
import sys
from pathlib import Path

# Helpers that stand beside a test (`shards.py`, `harness.py`) are imported by their name.
for directory in sorted({path.parent for path in Path(__file__).parent.rglob("*.py")}):
    if str(directory) not in sys.path:
        sys.path.append(str(directory))

LONG = bool(os.environ.get("KOHORT_LONG"))
"""Whether the long versions of crash, fuzz and simulation tests run (`make test-long`)."""
