"""kohort top: numbers between two scrapes, output for programs and pipes, and a terminal that `q` leaves."""

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from kohort.cli.top import DEFAULT_METRICS, Scraped, quantile_ms, render, view
from kohort.testing.process import KOHORT

SECONDS_MAX = 60.0


def text(uptime: float, *, requests: int, slow: int, connections: int, size: int, end: int, started: int = 1) -> str:
    fast = requests - slow
    return f"""\
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
# TYPE kohort_uptime_seconds gauge
kohort_uptime_seconds {uptime}
# TYPE process_cpu_seconds counter
process_cpu_seconds_total {uptime / 2}
# TYPE kohort_connections gauge
kohort_connections {connections}
# TYPE kohort_connections_accepted counter
kohort_connections_accepted_total {connections * 2}
# TYPE kohort_requests counter
kohort_requests_total{{api="Produce"}} {requests}
kohort_requests_total{{api="Heartbeat"}} 4
# TYPE kohort_request_seconds histogram
kohort_request_seconds_bucket{{api="Produce",le="0.001"}} {fast}
kohort_request_seconds_bucket{{api="Produce",le="0.002"}} {fast}
kohort_request_seconds_bucket{{api="Produce",le="1.0"}} {requests}
kohort_request_seconds_bucket{{api="Produce",le="+Inf"}} {requests}
# TYPE kohort_group_coordinator_groups gauge
kohort_group_coordinator_groups{{protocol="classic"}} 3
# TYPE kohort_group_coordinator_classic_groups gauge
kohort_group_coordinator_classic_groups{{state="Stable"}} 2
kohort_group_coordinator_classic_groups{{state="Empty"}} 1
# TYPE kohort_log_size_bytes gauge
kohort_log_size_bytes{{topic="t",partition="0"}} {size}
kohort_log_size_bytes{{topic="t",partition="1"}} 500
kohort_log_size_bytes{{topic="idle",partition="0"}} 9000
# TYPE kohort_log_end_offset gauge
kohort_log_end_offset{{topic="t",partition="0"}} {end}
kohort_log_end_offset{{topic="t",partition="1"}} 5
kohort_log_end_offset{{topic="idle",partition="0"}} 90
"""


FIRST = Scraped(text(100, requests=200, slow=0, connections=3, size=1_000, end=10), at=50.0)
SECOND = Scraped(text(104, requests=1_200, slow=500, connections=5, size=9_000, end=50), at=54.0)
RESTARTED = Scraped(text(2, requests=10, slow=0, connections=1, size=1_000, end=10, started=2), at=60.0)


def test_the_numbers_between_two_scrapes() -> None:
    shown = view(SECOND, FIRST)
    assert (shown.seconds, shown.cpu, shown.connections, shown.connections_per_second) == (4.0, 0.5, 5, 1.0)
    produce, heartbeat = shown.requests
    assert (produce.api, produce.requests, produce.per_second) == ("Produce", 1_000, 250.0)
    # 500 took up to a millisecond, 500 up to a second.
    assert produce.p50_ms == 1.0
    assert produce.p99_ms == pytest.approx(980.04)
    assert (heartbeat.api, heartbeat.requests, heartbeat.p50_ms) == ("Heartbeat", 0, None)
    assert shown.groups == {"classic": {"Stable": 2, "Empty": 1}}
    grown, idle = shown.logs
    assert (grown.topic, grown.partitions, grown.size_bytes) == ("t", 2, 9_500)
    assert (grown.bytes_per_second, grown.records_per_second) == (2_000.0, 10.0)
    assert (idle.topic, idle.bytes_per_second, idle.size_bytes) == ("idle", 0.0, 9_000)


@pytest.mark.parametrize(
    ("now", "before", "seconds", "per_second"), [(FIRST, None, 100.0, 2.0), (RESTARTED, SECOND, 2.0, 5.0)]
)
def test_without_an_earlier_scrape_or_after_a_restart_the_numbers_are_those_since_the_start(
    now: Scraped, before: Scraped | None, seconds: float, per_second: float
) -> None:
    shown = view(now, before)
    assert (shown.seconds, shown.requests[0].per_second) == (seconds, per_second)


# fmt: off
QUANTILES = [  # buckets, fraction, milliseconds
    ({},                                           0.5,  None),
    ({1.0: 0.0, float("inf"): 0.0},                0.5,  None),
    ({1.0: 10.0, float("inf"): 10.0},              0.5,  500.0),
    ({1.0: 10.0, 2.0: 20.0, float("inf"): 20.0},   0.75, 1500.0),
    ({1.0: 10.0, 2.0: 20.0, float("inf"): 40.0},   0.99, 2000.0),   # nothing is known beyond the last bound
]
# fmt: on


@pytest.mark.parametrize(("below", "fraction", "milliseconds"), QUANTILES)
def test_quantiles(below: dict[float, float], fraction: float, milliseconds: float | None) -> None:
    assert quantile_ms(below, fraction) == milliseconds


def test_a_small_terminal_shows_the_first_of_each_table() -> None:
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as captured:
        console.print(render(view(SECOND, FIRST), 13))
    lines = captured.get().splitlines()
    assert len(lines) <= 13
    assert any(line.startswith("Produce") for line in lines)
    assert any(line.startswith("t ") for line in lines)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the metrics of a broker in memory."""
    command = [*KOHORT, "serve", "--memory", "--port", "0", "--metrics-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout is not None
        port = re.search(r"metrics_port=(\d+)", broker.stdout.readline())
        assert port is not None
        yield f"127.0.0.1:{port[1]}"
        broker.terminate()
        assert broker.wait(SECONDS_MAX) == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KOHORT, "top", *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def test_once_for_programs_and_for_people(address: str) -> None:
    done = run("--metrics", address, "--once", "--json")
    shown = json.loads(done.stdout)
    assert shown["connections"] == 0
    assert shown["resident_bytes"] > 10_000_000
    assert set(shown["groups"]) == {"classic", "consumer", "share"}
    done = run("--metrics", f"http://{address}/metrics", "--once")
    assert done.returncode == 0
    assert "connections 0" in done.stdout
    assert "REQUESTS/S" in done.stdout


def test_a_pipe_gets_one_line_for_each_view_until_it_is_closed(address: str) -> None:
    command = [*KOHORT, "top", "--metrics", address, "--json", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        assert top.stderr is not None
        first, second = (json.loads(top.stdout.readline()) for _ in range(2))
        top.stdout.close()
        assert top.wait(SECONDS_MAX) == 1
        assert top.stderr.read() == ""
    assert second["seconds"] < first["uptime_seconds"] + 10
    assert second["uptime_seconds"] > first["uptime_seconds"]


def test_a_terminal_shows_the_view_until_q(address: str) -> None:
    master, slave = pty.openpty()
    command = [*KOHORT, "top", "--metrics", address]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}) as top:
        os.close(slave)
        try:
            screen = b""
            deadline = time.monotonic() + SECONDS_MAX
            while b"REQUESTS/S" not in screen and time.monotonic() < deadline:
                screen += read_some(master, 1)
            os.write(master, b"xq")
            while top.poll() is None and time.monotonic() < deadline:
                screen += read_some(master, 0.05)
            assert top.wait(SECONDS_MAX) == 0
        finally:
            top.kill()
    os.close(master)
    assert b"REQUESTS/S" in screen


def read_some(master: int, seconds: float) -> bytes:
    """What a terminal shows next; nothing after so long, or if the other side is closed. Descriptors may be above 1,023."""
    poll = select.poll()
    poll.register(master, select.POLLIN)
    if not poll.poll(seconds * 1000):
        return b""
    try:
        return os.read(master, 65_536)
    except OSError:  # the other side is closed
        return b""


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "kohort: no metrics at 127.0.0.1:1: "),
        ("nowhere", f"kohort: --metrics must be HOST:PORT, for example {DEFAULT_METRICS}; it is 'nowhere'"),
    ],
)
def test_an_address_without_metrics_is_one_sentence(address: str, message: str) -> None:
    done = run("--metrics", address, "--once")
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1
