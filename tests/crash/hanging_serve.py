"""`kohort serve` on a disk of which each call whose name is in the file `HANG` waits, until the file is removed."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort.cli.main import main
from kohort.storage.files import syscalls

FLAG = Path(os.environ["HANG"])
ARRIVED = FLAG.with_suffix(".arrived")
"""Made by the first call that waits."""


def hanging(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any) -> Any:
        while FLAG.exists() and FLAG.read_text() == name:
            ARRIVED.touch()
            time.sleep(0.005)
        return call(*args)

    return wait


if __name__ == "__main__":
    for call_name in syscalls.CHANGING:
        if getattr(syscalls, call_name) is not None:
            setattr(syscalls, call_name, hanging(call_name, getattr(syscalls, call_name)))
    main()
