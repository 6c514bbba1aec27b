"""
A broker under hostile frames: it lives, its log has no error, and a client beside the attackers loses nothing.

`make fuzz` runs longer. A failing run prints its seed; `python -m kohort_lab.fuzz --seed N` sends the same frames.
"""

import asyncio
import threading
import time
from pathlib import Path
from random import Random

import pytest

from kohort.client.addresses import Address
from kohort.client.connection import Connection
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from kohort_lab.fuzz import Control, ControlError, Sampler, fuzz, mutate_frame
from kohort_lab.fuzz.run import TURN_SECONDS_MAX, Report, read_corpus
from kohort_lab.fuzz.turns import LongestTurn, read_longest
from tests.conftest import LONG
from tests.crash.write_fuzz_corpus import CORPUS

FRAMES = 1_000_000 if LONG else 4_000
MEMORY_BYTES_MAX = 1 << 30
"""The bound of one decompressed batch and its buffers, twice over, and a broker."""


def test_a_broker_withstands_hostile_frames(seed: int) -> None:
    report = fuzz(seed, corpus=read_corpus(CORPUS), frames=FRAMES)
    print(report)
    assert report.failures == [], str(report)
    assert report.frames >= FRAMES
    assert report.controlled > 0
    assert report.answered_bytes > 0
    assert report.peak_bytes is None or report.peak_bytes < MEMORY_BYTES_MAX


def test_the_control_client_notices_lost_records_and_wrong_offsets(tmp_path: Path) -> None:
    with ServedKohort(tmp_path) as served:
        address = Address("127.0.0.1", served.port)
        control = Control(address)
        control.prepare()
        for _ in range(3):
            control.step()
        control.check_all()
        with Connection(address, timeout_s=60) as other:
            commit = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
            topic = m.OffsetCommitRequestTopic(name="control", partitions=[commit])
            other.send(
                ApiKey.OFFSET_COMMIT,
                m.OffsetCommitRequest(group_id="control", generation_id_or_member_epoch=-1, topics=[topic]),
                within=other.versions[ApiKey.OFFSET_COMMIT]._replace(newest=9),
            )
            with pytest.raises(ControlError, match="OffsetFetch"):
                control.check_all()
            partition = m.DeleteRecordsPartition(partition_index=0, offset=1)
            deleted = m.DeleteRecordsTopic(name="control", partitions=[partition])
            other.send(ApiKey.DELETE_RECORDS, m.DeleteRecordsRequest(topics=[deleted], timeout_ms=30_000))
        with pytest.raises(ControlError, match="Fetch"):
            control.check_all()
        control.close()
        # The topic exists already, so the control client of a run fails.
        (failure,) = fuzz(1, seconds=0, bootstrap=address).failures
        assert failure.startswith("CreateTopics: ")


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.api_name)
def test_samples_are_valid_requests(api: ApiKey, rng: Random) -> None:
    sampler = Sampler(rng)
    for version in range(api.oldest, api.newest_stable + 1):
        for _ in range(3):
            frame = sampler.request(api, version)[4:]
            key, read_version, *_, offset = read_request_header(frame)
            assert (key, read_version) == (api, version)
            request_reader(api, version)(frame, offset)


def test_a_seed_makes_the_same_frames(seed: int) -> None:
    def made() -> list[bytes]:
        rng = Random(seed)
        sampler = Sampler(rng)
        return [mutate_frame(sampler.request(ApiKey.OFFSET_COMMIT, 9), rng) for _ in range(50)]

    assert made() == made()
    assert len(set(made())) > 40


def test_the_frames_of_a_failure_become_a_corpus(tmp_path: Path) -> None:
    report = Report(seed=1, recent=[[b"one", b"two"], [b"three"]])
    report.write_frames(tmp_path / "build" / "frames.jsonl.gz")
    assert read_corpus(tmp_path / "build" / "frames.jsonl.gz") == [b"one", b"two", b"three"]


def test_a_long_turn_of_the_event_loop_is_measured(tmp_path: Path) -> None:
    """In processor time: a turn that sleeps counts for nothing."""

    async def turns() -> float:
        loop = asyncio.get_running_loop()
        longest = LongestTurn(loop, tmp_path / "turns")
        measuring = threading.Thread(target=longest.run, daemon=True)
        measuring.start()
        while not longest.seconds:
            await asyncio.sleep(0.001)
        until = time.thread_time() + 2 * TURN_SECONDS_MAX
        while time.thread_time() < until:
            pass
        while longest.seconds < TURN_SECONDS_MAX:
            await asyncio.sleep(0.001)
        return longest.seconds

    assert TURN_SECONDS_MAX < asyncio.run(turns()) < 4 * TURN_SECONDS_MAX
    assert (read_longest(tmp_path / "turns") or 0) > TURN_SECONDS_MAX
