"""`python -m kohort_lab.fuzz_decoders TARGET`: run the search in a process that has imported nothing of Kohort yet."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, str(Path(__file__).with_name("search.py")), *sys.argv[1:]])  # noqa: S606
