"""A run of the fuzzer: a broker, attackers, the control client, and a report."""

import base64
import gzip
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from kohort.client.addresses import Address
from kohort.client.connection import Connection, Versions
from kohort.testing.served import ServedKohort, ServerFailedError
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort_lab.fuzz.attack import Attack
from kohort_lab.fuzz.control import Control, ControlError
from kohort_lab.fuzz.samples import TOPICS, Sampler
from kohort_lab.fuzz.turns import read_longest

ATTACKERS: Final = 4
PARTITIONS: Final = 2
STEP_PAUSE_S: Final = 0.02
"""Time between two steps of the control client."""
CHECK_EVERY: Final = 50
"""Steps of the control client between two complete checks."""
PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
TURN_SECONDS_MAX: Final = 0.1
"""The most processor time of the event loop that a new request may wait. Load of the machine does not count."""
_JOIN_S: Final = 120.0


@dataclass
class Report:
    """
    What a run has found.

    Attributes:
        failures: a sentence for each failure; empty if the broker has withstood.
        latencies_s: the durations of the control client's requests, sorted.
        peak_bytes: the peak of the broker's resident memory; None if the broker is not ours or the system does not tell.
        longest_turn_s: the most processor time of the event loop that a request waited; None if the broker is not ours.
        recent: of each attacker, the last frames that it sent.
    """

    seed: int
    frames: int = 0
    connections: int = 0
    answered_bytes: int = 0
    seconds: float = 0.0
    controlled: int = 0
    latencies_s: list[float] = field(default_factory=list)
    peak_bytes: int | None = None
    longest_turn_s: float | None = None
    failures: list[str] = field(default_factory=list)
    recent: list[list[bytes]] = field(default_factory=list)
    by_api: Counter[ApiKey] = field(default_factory=Counter)

    def __str__(self) -> str:
        times = self.latencies_s or [0.0]
        memory = "" if self.peak_bytes is None else f", peak memory {self.peak_bytes >> 20} MiB"
        turn = "" if self.longest_turn_s is None else f", longest turn of the loop {self.longest_turn_s * 1000:.1f} ms"
        return (
            f"{self.frames} frames on {self.connections} connections in {self.seconds:.0f} s, "
            f"{self.answered_bytes >> 10} KiB of answers; control client: {self.controlled} records, "
            f"{len(times)} requests, median {times[len(times) // 2] * 1000:.1f} ms, "
            f"99 % {times[len(times) * 99 // 100] * 1000:.1f} ms, worst {times[-1] * 1000:.1f} ms{turn}{memory}; "
            f"{len(self.failures) or 'no'} failures (--seed {self.seed})"
        )

    def write_frames(self, path: Path) -> None:
        """Write the last frames of each attacker, oldest first, in the form of a corpus."""
        lines = [
            json.dumps({"name": f"attacker {number}", "frame": base64.b64encode(frame).decode()})
            for number, frames in enumerate(self.recent)
            for frame in frames
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def read_corpus(path: Path) -> list[bytes]:
    """The frames of a corpus: gzipped lines of JSON with a name and a frame in base64."""
    with gzip.open(path) as lines:
        return [base64.b64decode(json.loads(line)["frame"]) for line in lines]


def fuzz(
    seed: int,
    *,
    seconds: float | None = None,
    frames: int | None = None,
    attackers: int = ATTACKERS,
    corpus: Sequence[bytes] = (),
    bootstrap: Address | None = None,
    command: Sequence[str] | None = None,
) -> Report:
    """
    Attack a broker until a time or a number of frames is reached, or the control client fails.

    A broker of our own is started again at the end: it has to load what it has stored.

    Args:
        bootstrap: a running broker, on which the topics `control` and `fuzz-*` do not exist; a new one by default.
        command: the command line of `kohort`; by default one whose event loop is measured.
    """
    report = Report(seed)

    def attack(address: Address) -> Control:
        return _attack(report, address, Random(seed), seconds, frames, attackers, corpus)

    if bootstrap is not None:
        attack(bootstrap).close()
        return report
    with tempfile.TemporaryDirectory(prefix="kohort-fuzz-") as directory:
        turns = Path(directory, "turns")
        command = command or (sys.executable, "-m", "kohort_lab.fuzz.turns", str(turns))
        served = ServedKohort(Path(directory), PROPERTIES, command=command).start()
        control = attack(Address("127.0.0.1", served.port))
        report.peak_bytes = served.peak_bytes
        report.longest_turn_s = read_longest(turns)
        if (report.longest_turn_s or 0) > TURN_SECONDS_MAX:
            report.failures.append(f"a turn of the event loop took more than {TURN_SECONDS_MAX * 1000:.0f} ms")
        if not served.is_running:
            report.failures.append(f"the broker has ended:\n{served.log_tail()}")
        try:
            served.stop()
            if not report.failures:
                served.start()
                control.reconnect()
                control.check_all()
        except (ServerFailedError, ControlError, RuntimeError) as error:
            report.failures.append(f"after the attack: {error}")
        finally:
            control.close()
            served.kill()
    return report


def _attack(
    report: Report,
    address: Address,
    rng: Random,
    seconds: float | None,
    frames: int | None,
    attackers: int,
    corpus: Sequence[bytes],
) -> Control:
    start = time.monotonic()
    control = Control(address)
    done = threading.Event()
    running: list[Attack] = []
    try:
        control.prepare()
        apis, topic_ids = _prepare(address)

        def may_go_on() -> bool:
            is_late = seconds is not None and time.monotonic() - start >= seconds
            is_enough = frames is not None and sum(each.frames for each in running) >= frames
            return not (done.is_set() or is_late or is_enough)

        for number in range(attackers):
            own = Random(rng.getrandbits(64))
            part = corpus[number::attackers]
            running.append(Attack(address, own, Sampler(own, topic_ids), apis, part, may_go_on))
        for each in running:
            each.start()
        while any(each.is_alive() for each in running):
            control.step()
            if control.produced % CHECK_EVERY == 0:
                control.check_all()
            done.wait(STEP_PAUSE_S)
        control.check_all()
    except ControlError as error:
        report.failures.append(str(error))
    finally:
        done.set()
        for each in running:
            each.join(_JOIN_S)
        _collect(report, running, control, time.monotonic() - start)
    return control


def _collect(report: Report, attackers: Sequence[Attack], control: Control, seconds: float) -> None:
    report.seconds = seconds
    report.controlled = control.produced
    report.latencies_s = sorted(control.latencies_s)
    for each in attackers:
        report.frames += each.frames
        report.connections += each.connections
        report.answered_bytes += each.answered_bytes
        report.recent.append(list(each.recent))
        report.by_api += each.sent_by_api
        if each.failure is not None:
            report.failures.append(f"an attacker has stopped: {each.failure!r}")


def _prepare(address: Address) -> tuple[list[tuple[ApiKey, int]], list[UUID]]:
    """Create the topics of the attackers; the requests that the broker serves, with their versions, and the topics' ids."""
    topics = [
        m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        for name in TOPICS
    ]
    request = m.CreateTopicsRequest(topics=topics, timeout_ms=30_000)
    with Connection(address, timeout_s=60, client_id="fuzz") as connection:
        created = connection.send(ApiKey.CREATE_TOPICS, request, within=Versions(7, 7))
        apis = [
            (api, version)
            for key, served in connection.versions.items()
            if (api := API_KEYS.get(key)) is not None
            for version in range(max(served.oldest, api.oldest), min(served.newest, api.newest) + 1)
        ]
    return apis, [topic.topic_id for topic in created.topics if topic.topic_id is not None]
