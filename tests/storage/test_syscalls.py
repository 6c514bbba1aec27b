"""What is written in pieces is in the file whole, however little the system takes at a time."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kohort.storage.files import syscalls
from kohort.storage.files.syscalls import BUFFERS_MAX, write_at
from kohort.storage.log import LogConfig
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

PIECES = {
    "none": [],
    "one": [b"one"],
    "empty ones too": [b"a", b"", bytearray(b"bc"), b""],
    "as many as one call takes": [bytes([number % 256]) for number in range(BUFFERS_MAX)],
    "more than one call takes": [bytes([number % 256]) * 3 for number in range(2 * BUFFERS_MAX + 1)],
}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("taken_bytes", [None, 1, 700], ids=["all", "a byte", "700 bytes"])
def test_pieces_lie_one_behind_the_other(
    tmp_path: Path, pieces: Sequence[bytes], taken_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if taken_bytes is not None:
        monkeypatch.setattr(syscalls, "pwrite", lambda fd, data, at: os.pwrite(fd, bytes(data[:taken_bytes]), at))
        monkeypatch.setattr(
            syscalls, "pwritev", lambda fd, some, at: os.pwrite(fd, b"".join(some)[:taken_bytes], at), raising=False
        )
    assert written_at(tmp_path / "file", pieces) == b"before" + b"".join(pieces)


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
def test_where_the_system_takes_one_piece_at_a_time(
    tmp_path: Path, pieces: Sequence[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "pwritev", None)
    assert written_at(tmp_path / "file", pieces) == b"before" + b"".join(pieces)


def written_at(path: Path, pieces: Sequence[bytes]) -> bytes:
    path.write_bytes(b"before")
    fd = os.open(path, os.O_RDWR)
    try:
        assert write_at(fd, pieces, 6) == 6 + sum(map(len, pieces))
    finally:
        os.close(fd)
    return path.read_bytes()


def test_a_write_that_fails_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with FaultyFiles(tmp_path, refuse=fail_on("write", "file")):
        fd = syscalls.open_file(path, os.O_RDWR | os.O_CREAT)
        with pytest.raises(OSError, match="Input/output error"):
            write_at(fd, [b"a", b"b"], 0)
        os.close(fd)


def test_files_are_for_their_owner_alone(base: Path) -> None:
    """Whatever the umask: the files hold the records of all clients."""
    umask = os.umask(0o022)
    try:
        store = Owner().disk(base / "data")
        log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=100))
        for _ in range(2):
            log.append(batch("x"), leader_epoch=0)
        store.flush()
        written = [base / "data", *(base / "data").rglob("*")]
        store.close()
        written += (base / "data").rglob("*")
    finally:
        os.umask(umask)
    assert {f"{path.name} {path.stat().st_mode & 0o077:o}" for path in written if path.exists()} == {
        f"{path.name} 0" for path in written if path.exists()
    }
