"""
Seconds of test files: the longest file runs first, and CI names the rooms that take longer than their budget.

`tests/durations.json` holds the measured seconds of each file and the seconds of the calibration loop on the machine that
measured them. `make durations` writes it anew.
"""

import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.plugins.scopes import scope_of

TABLE = Path(__file__).parents[1] / "durations.json"
WRITE = os.environ.get("KOHORT_DURATIONS", "")
"""Where a complete run writes its measurements (`make durations`)."""
BUDGET_FACTOR = 2.0
"""A room may take this many times its recorded seconds on a machine of the same speed."""
BUDGET_LEAST_S = 60.0
"""No room has a smaller budget: one slow start of a JVM is no finding."""
_OTHERS_MAX = 0.75
_CALIBRATION_ROUNDS = 60_000
_REPORTED_FILES = 20
_RECORDED_LEAST_S = 0.5


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


class Table:
    """
    The recorded measurements.

    Attributes:
        calibration_s: seconds of the calibration loop on the recording machine, while the tests ran.
        files: wall seconds of each test file, by path from the root of the repository.
    """

    def __init__(self, path: Path = TABLE) -> None:
        content = json.loads(path.read_text()) if path.exists() else {}
        self.calibration_s: float = content.get("calibration_s", 0.0)
        self.files: dict[str, float] = content.get("files", {})
        self._middle_s = statistics.median(self.files.values()) if self.files else 0.0

    def of(self, file: str) -> float:
        """The seconds of a file; the middle of all for one that is not in the table."""
        return self.files.get(file, self._middle_s)

    def rooms(self) -> Counter[str]:
        return by_room(self.files.items())


def by_room(files: Iterable[tuple[str, float]]) -> Counter[str]:
    """Seconds by room. A room is a directory directly below `tests`, or a test file there."""
    found: Counter[str] = Counter()
    for path, seconds in files:
        found[room_of(path)] += seconds  # type: ignore[assignment]  # a Counter of seconds
    return found


def room_of(path: str) -> str:
    return "/".join(path.split("/")[:2])


def over_budget(
    taken: Counter[str], table: Table, calibration_s: float, others: float = 0.0
) -> dict[str, tuple[float, float]]:
    """
    The rooms that took more than their budget: seconds taken and seconds allowed.

    Args:
        calibration_s: seconds of the calibration loop in this run. A machine that is slower may take longer in proportion; a
            faster machine may not take less than the recorded time.
        others: the share of the processors that processes of others took. The loop is too short to meet them.
    """
    slowness = max(calibration_s / table.calibration_s, 1.0) if table.calibration_s else 1.0
    slowness /= 1.0 - min(others, _OTHERS_MAX)
    recorded = table.rooms()
    allowed = {room: max(BUDGET_LEAST_S, BUDGET_FACTOR * recorded[room]) * slowness for room in taken}
    return {room: (seconds, allowed[room]) for room, seconds in taken.items() if seconds > allowed[room]}


def calibrate() -> float:
    """Wall seconds of a fixed loop: the speed of this machine for one process, with its present load."""
    began = time.perf_counter()
    total = 0
    for number in range(_CALIBRATION_ROUNDS):
        total += number * number % 7
    return time.perf_counter() - began


def cpu_s() -> float:
    """User and system seconds of this process and of its child processes, those that have ended and those that run."""
    seconds = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            seconds += sum(child.cpu_times()[:4])
    return seconds


def machine_s() -> float:
    """Seconds that all processors have worked since the start of the machine; 0 where the system does not tell."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Measuring:
    """The side that runs tests: an xdist worker, or the only process. It orders items and measures CPU seconds."""

    def __init__(self, *, is_worker: bool) -> None:
        self._is_worker = is_worker
        self._table = Table()
        self._cpu_s = cpu_s()
        self._collection_s = 0.0
        self._ends_file = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the longest scope first, so that no worker begins a long one when the others have finished."""
        if self._is_worker:
            seconds = {file: self._table.of(file) for file in {item.nodeid.split("::")[0] for item in items}}
            scopes: Counter[str] = Counter()
            for file, taken in seconds.items():
                scopes[scope_of(file)] += taken  # type: ignore[assignment]  # a Counter of seconds

            def place(item: pytest.Item) -> tuple[float, float]:
                file = item.nodeid.split("::")[0]
                return -scopes[scope_of(file)], -seconds[file]

            items.sort(key=place)

    def pytest_collection_finish(self) -> None:
        now = cpu_s()
        self._collection_s, self._cpu_s = now - self._cpu_s, now

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        self._ends_file = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """The last report of a file has the seconds of the processors, the first one of a worker those of its collection."""
        report = yield
        if self._collection_s:
            report.collection_s, self._collection_s = self._collection_s, 0.0
        if call.when == "teardown" and self._ends_file:
            now = cpu_s()
            report.cpu_s, self._cpu_s = now - self._cpu_s, now
            if is_ci() or WRITE:
                report.calibration_s = calibrate()
        return report


class Reporting:
    """
    The side that prints: the xdist controller, or the only process. It sums seconds, and compares them with budgets.

    A room above its budget is a note, no failure: a machine may be slow in ways that the calibration loop does not meet.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wall: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._collections: list[float] = []
        self._calibrations: list[float] = []
        self._began = time.monotonic()
        self._machine_s = machine_s()

    def pytest_runtest_logreport(self, report: Any) -> None:
        file = report.nodeid.split("::")[0]
        self._wall[file] += report.duration
        self._cpu[file] += getattr(report, "cpu_s", 0.0)  # type: ignore[assignment]  # a Counter of seconds
        if hasattr(report, "collection_s"):
            self._collections.append(report.collection_s)
        if hasattr(report, "calibration_s"):
            self._calibrations.append(report.calibration_s)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if WRITE:
            self._write(Path(WRITE))
        over = self._over_budget()
        if not over and not WRITE and not is_ci():
            return
        terminalreporter.section("seconds")
        for line in self._lines():
            terminalreporter.line(line)
        for room, (seconds, allowed) in over.items():
            terminalreporter.line(f"NOTE {room} took {seconds:.0f} s; its budget is {allowed:.0f} s (tests/README.md)")

    def _over_budget(self) -> dict[str, tuple[float, float]]:
        if not is_ci() or not self._calibrations or os.environ.get("KOHORT_LONG"):
            return {}
        return over_budget(by_room(self._wall.items()), Table(), statistics.median(self._calibrations), self._others())

    def _others(self) -> float:
        """The share of the processors that processes of others took during the run."""
        seconds = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        ours = self._cpu.total() + sum(self._collections)
        return max(machine_s() - self._machine_s - ours, 0.0) / seconds

    def _lines(self) -> list[str]:
        lines = [f"{'wall':>7} {'cpu':>7}  slowest files"]
        lines += [
            f"{wall:7.1f} {self._cpu[file]:7.1f}  {file}" for file, wall in self._wall.most_common(_REPORTED_FILES)
        ]
        lines.append(f"{'wall':>7} {'cpu':>7}  rooms")
        rooms, cpu = by_room(self._wall.items()), by_room(self._cpu.items())
        lines += [f"{wall:7.1f} {cpu[room]:7.1f}  {room}" for room, wall in rooms.most_common()]
        collections = " + ".join(f"{each:.0f}" for each in self._collections)
        calibration_ms = 1000 * statistics.median(self._calibrations or [0.0])
        seconds = time.monotonic() - self._began
        lines.append(
            f"{seconds:.0f} s in all; collection {collections} s of the processors; calibration loop {calibration_ms:.2f} ms;"
            f" other processes took {self._others():.0%} of the processors"
        )
        return lines

    def _write(self, path: Path) -> None:
        files = {file: round(wall, 1) for file, wall in self._wall.most_common() if wall >= _RECORDED_LEAST_S}
        calibration_s = round(statistics.median(self._calibrations or [0.0]), 6)
        path.write_text(json.dumps({"calibration_s": calibration_s, "files": files}, indent=1) + "\n")


def register(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    config.pluginmanager.register(Measuring(is_worker=is_worker), "kohort-measuring")
    if not is_worker:
        # xdist would put the file with the most tests first.
        config.option.loadscopereorder = False
        config.pluginmanager.register(Reporting(config), "kohort-reporting")
