"""Checksums in numpy, where the native package is missing, and logs that are read with them."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kohort.pipeline.decode import batches
from kohort.pipeline.decode.batches import scans
from kohort.pipeline.decode.checksums import ChecksumsAhead, checksums
from kohort.pipeline.decode.segments import list_segments
from tests.pipeline.logbytes import batch, offset_key, offset_value


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(4, 1_300)), min_size=1, max_size=12), st.integers(0, 99))
def test_checksums_of_many_ranges(gaps_and_sizes: list[tuple[int, int]], seed: int) -> None:
    """Ranges begin and end anywhere in the pieces of 256 bytes, and have up to six of them."""
    starts, ends, at = [], [], 0
    for gap, size in gaps_and_sizes:
        starts.append(at + gap)
        ends.append(at := at + gap + size)
    raw = random.Random(seed).randbytes(at)
    found = checksums(np.frombuffer(raw, np.uint8), np.array(starts), np.array(ends))
    assert found.tolist() == [crc32c(raw[start:end]) for start, end in zip(starts, ends, strict=True)]


def single(data: Any) -> int:
    raw = np.frombuffer(data, np.uint8)
    return int(checksums(raw, np.zeros(1, np.int64), np.full(1, len(raw)))[0])


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which the decoder is as without the native package."""

    def lacking() -> None:
        monkeypatch.setattr(batches, "IS_NATIVE", False)
        monkeypatch.setattr(batches, "crc32c", single)

    return lacking


def told(raw: bytes) -> list[Any]:
    return [(scan.positions.tolist(), scan.damage) for scan in scans(raw, batches_max=7)]


def damaged_logs() -> list[bytes]:
    """A log of 40 batches of several sizes; with a wrong byte in one place each; with ends cut off."""
    chance = random.Random(5)
    parts = [
        batch(at, [(offset_key("g", "t" * chance.randint(1, 200), 0), offset_value(at))], timestamp_ms=at)
        for at in range(40)
    ]
    whole = b"".join(parts)
    found = [whole, whole[:-1], whole[:-70], whole + bytes(500), b"", whole[:30]]
    for _ in range(60):
        at = chance.randrange(len(whole))
        found.append(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
    return found


def test_batches_and_damage_are_those_of_the_native_checksum(plain: Callable[[], None]) -> None:
    expected = [told(raw) for raw in damaged_logs()]
    assert sum(bool(damage) for one in expected for _, damage in one) > 50
    plain()
    assert [told(raw) for raw in damaged_logs()] == expected


def test_a_recorded_log(recorded: Callable[[str], Path], plain: Callable[[], None]) -> None:
    raws = [Path(one.path).read_bytes() for one in list_segments(recorded("main") / "logs")]
    expected = [told(raw) for raw in raws]
    plain()
    assert [told(raw) for raw in raws] == expected


def test_a_window_of_batches_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*arguments: Any) -> Any:
        asked.append(len(arguments[1]))
        return checksums(*arguments)

    monkeypatch.setattr("kohort.pipeline.decode.checksums.checksums", counted)
    raw = batch(0, [(b"k", b"v" * 400)]) * 5_000
    size = len(raw) // 5_000
    ahead = ChecksumsAhead(memoryview(raw))
    assert {ahead.of(at) for at in range(0, len(raw), size)} == {crc32c(raw[21:size])}
    assert len(asked) == 3
    assert sum(asked) == 5_000
