"""Small file systems, which a check can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FILLED_BYTES: Final = 1 << 20


def mount_bounded(directory: Path, mib: int) -> bool:
    """Mount an empty file system of this size; False if this user may not."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "kohort-bounded", str(directory)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=False)


@contextmanager
def filled(directory: Path) -> Iterator[None]:
    """Leave no room in the file system of a directory until the end of the context."""
    filler = directory / "filler"
    try:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(FILLED_BYTES))
        yield
    finally:
        filler.unlink(missing_ok=True)
