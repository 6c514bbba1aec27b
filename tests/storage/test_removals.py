"""Many directories of deleted partitions are removed by a process; a stop does not wait for it."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kohort.storage.disk.removals import _PROGRAM, Removals
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.owner import WAIT_SECONDS


def directories(tmp_path: Path, count: int) -> list[Path]:
    found = [tmp_path / f"t-{number}.{number:032x}-delete" for number in range(count)]
    for each in found:
        (each / "directory").mkdir(parents=True)
        (each / "00000000000000000000.log").write_bytes(b"records")
        (each / "link").symlink_to(tmp_path)
    return found


def await_end(removals: Removals) -> None:
    is_done = threading.Event()
    removals._thread.submit(is_done.set)
    assert is_done.wait(WAIT_SECONDS)


def calls_for(tmp_path: Path, count: int, removals: Removals) -> Sequence[str]:
    """Which calls this process makes to remove directories."""
    calls: list[str] = []
    found = directories(tmp_path, count)
    with FaultyFiles(tmp_path, refuse=lambda call, _path: calls.append(call)):
        removals.add(found)
        await_end(removals)
    assert not any(each.exists() for each in found)
    assert tmp_path.exists(), "a symbolic link is not followed"
    return calls


def test_directories_are_removed_by_a_process(tmp_path: Path) -> None:
    removals = Removals()
    assert not calls_for(tmp_path, 3, removals)
    assert removals.stop(WAIT_SECONDS)


def test_the_thread_removes_what_a_process_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be started, or it fails."""
    removals = Removals()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert calls_for(tmp_path, 1, removals).count("remove_directory") == 2
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    assert calls_for(tmp_path, 1, removals).count("remove_directory") == 2
    assert removals.stop(WAIT_SECONDS)


def test_a_stop_kills_the_process_and_leaves_its_directories_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping = tmp_path / "sleeping"
    sleeping.write_text("#!/bin/sh\necho > begun\nexec sleep 1000\n")
    sleeping.chmod(0o700)
    os.mkfifo(tmp_path / "begun")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(sleeping))
    removals = Removals()
    found = directories(tmp_path, 1)
    removals.add(found)
    (tmp_path / "begun").read_text()
    assert removals.stop(WAIT_SECONDS)
    assert found[0].exists()
    removals = Removals()
    removals.stop()
    removals.add(found)
    await_end(removals)
    assert found[0].exists(), "nor is one begun afterwards"


def test_a_path_that_was_cut_off_or_is_no_deleted_partitions_is_not_removed(tmp_path: Path) -> None:
    """The broker was killed while it wrote."""
    first, second, third = directories(tmp_path, 3)
    other = third.rename(tmp_path / "t-2")
    cut = os.fsencode(first) + b"\0" + os.fsencode(other) + b"\0" + os.fsencode(second)
    subprocess.run([sys.executable, "-P", "-c", _PROGRAM], input=cut, check=True, cwd=tmp_path)
    assert not first.exists()
    assert other.exists(), "no directory of a deleted partition"
    assert second.exists()
