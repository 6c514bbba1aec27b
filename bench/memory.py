"""
Memory that is used once before servers are measured: `python -m bench.memory`.

The host of a virtual machine gives it a page of memory at the first use of the page, which takes some 10 microseconds. As long
as the page cache grows into memory that no process has used before, a server writes 350 MB/s instead of 4,000 to it, and the
measures of a run depend on their order. So a process of its own takes memory and gives it back.
"""

import mmap
import subprocess
import sys
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 8 << 30
"""More than the servers of one flush mode write in a full run, and have in memory."""
_STEP_BYTES: Final = 1 << 20


def use() -> None:
    """Use memory once, for some 10 s at most. Nothing happens if the process gets none."""
    subprocess.run([sys.executable, "-m", __name__], check=False)


def share_of(meminfo: str) -> int:
    """How many bytes are used: half of those that are available by `/proc/meminfo`, and at most `BYTES_MAX`."""
    available = next((line for line in meminfo.splitlines() if line.startswith("MemAvailable:")), "MemAvailable: 0 kB")
    return min(int(available.split()[1]) * 1024 // 2, BYTES_MAX)


def _fill(size: int) -> None:
    step = bytes(_STEP_BYTES)
    with mmap.mmap(-1, max(size, _STEP_BYTES)) as memory:
        for _ in range(size // _STEP_BYTES):
            memory.write(step)


if __name__ == "__main__":
    _fill(share_of(Path("/proc/meminfo").read_text()))
