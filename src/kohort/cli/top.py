"""
`kohort top`: a live view of a broker from its metrics: requests by API with rates and durations, groups by state, connections,
and the growth of logs.

The numbers come from `/metrics`. Rates and quantiles are those between two scrapes; the first view shows those since the start.
"""

import http.client
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from kohort.cli.options import SECONDS_MAX
from kohort.cli.output import print_json
from kohort.model.errors import ConfigError, KohortError
from kohort.model.numbers import is_port

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT_METRICS = "127.0.0.1:9404"
EPILOG = "Example: kohort serve --memory --metrics-port 9404, then: kohort top"
TIMEOUT_S = 5.0
LOGS_SHOWN = 10
_QUANTILES = (0.5, 0.99)
Labels = tuple[tuple[str, str], ...]


class ApiRequests(msgspec.Struct, frozen=True):
    """Requests of one API since the view before; durations in milliseconds, None without requests."""

    api: str
    requests: int
    per_second: float
    p50_ms: float | None
    p99_ms: float | None


class LogGrowth(msgspec.Struct, frozen=True):
    """Growth of the logs of one topic."""

    topic: str
    partitions: int
    size_bytes: int
    bytes_per_second: float
    records_per_second: float


class View(msgspec.Struct, frozen=True):
    """
    One view of a broker.

    Attributes:
        seconds: between the two scrapes, or since the start of the broker.
        cpu: fraction of one processor.
        groups: by protocol and state.
    """

    uptime_seconds: float
    seconds: float
    cpu: float
    resident_bytes: int
    open_files: int
    connections: int
    connections_per_second: float
    unsent_bytes: int
    bytes_in_per_second: float
    bytes_out_per_second: float
    requests: list[ApiRequests]
    groups: dict[str, dict[str, int]]
    transactions: int
    logs: list[LogGrowth]


class Scraped:
    """The samples of one scrape by name and labels."""

    def __init__(self, text: str, at: float) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self.at = at
        self.by_name: dict[str, dict[Labels, float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.by_name[sample.name][tuple(sorted(sample.labels.items()))] = sample.value

    def one(self, name: str) -> float:
        return self.by_name.get(name, {}).get((), 0.0)

    def by(self, label: str, name: str) -> dict[str, float]:
        """The sums of a metric by the values of a label."""
        sums: dict[str, float] = defaultdict(float)
        for labels, value in self.by_name.get(name, {}).items():
            sums[dict(labels).get(label, "")] += value
        return sums

    def buckets(self, api: str) -> dict[float, float]:
        """The cumulative buckets of the durations of an API."""
        return {
            float(dict(labels)["le"]): count
            for labels, count in self.by_name.get("kohort_request_seconds_bucket", {}).items()
            if dict(labels).get("api") == api
        }


def view(now: Scraped, before: Scraped | None) -> View:
    """Compare two scrapes of one broker; without an earlier one, or after a restart, with its start."""
    uptime = now.one("kohort_uptime_seconds")
    if before is None or before.one("process_start_time_seconds") != now.one("process_start_time_seconds"):
        before = Scraped("", now.at - uptime)
    seconds = max(now.at - before.at, 1e-3)

    def grown(name: str) -> float:
        return (now.one(name) - before.one(name)) / seconds

    return View(
        uptime_seconds=round(uptime, 1),
        seconds=round(seconds, 3),
        cpu=round(grown("process_cpu_seconds_total"), 3),
        resident_bytes=int(now.one("process_resident_memory_bytes")),
        open_files=int(now.one("process_open_fds")),
        connections=int(now.one("kohort_connections")),
        connections_per_second=round(grown("kohort_connections_accepted_total"), 1),
        unsent_bytes=int(now.one("kohort_unsent_bytes")),
        bytes_in_per_second=round(grown("kafka_server_brokertopicmetrics_bytesin_total"), 1),
        bytes_out_per_second=round(grown("kafka_server_brokertopicmetrics_bytesout_total"), 1),
        requests=_requests(now, before, seconds),
        groups=_groups(now),
        transactions=int(now.one("kohort_transaction_coordinator_ongoing_transactions")),
        logs=_logs(now, before, seconds),
    )


def _requests(now: Scraped, before: Scraped, seconds: float) -> list[ApiRequests]:
    counts, earlier = now.by("api", "kohort_requests_total"), before.by("api", "kohort_requests_total")
    found = []
    for api, total in counts.items():
        count = total - earlier.get(api, 0.0)
        known = before.buckets(api)
        below = {bound: number - known.get(bound, 0.0) for bound, number in now.buckets(api).items()}
        p50_ms, p99_ms = (quantile_ms(below, fraction) for fraction in _QUANTILES)
        found.append(ApiRequests(api, int(count), round(count / seconds, 1), p50_ms, p99_ms))
    return sorted(found, key=lambda each: (-each.per_second, each.api))


def quantile_ms(below: Mapping[float, float], fraction: float) -> float | None:
    """The duration that a fraction of all does not exceed, in milliseconds, interpolated in its bucket; None without any."""
    bounds = sorted(below)
    if not bounds or below[bounds[-1]] <= 0:
        return None
    rank = fraction * below[bounds[-1]]
    lower = previous = 0.0
    for bound in bounds:
        if below[bound] >= rank:
            if math.isinf(bound):
                break
            lower += (bound - lower) * (rank - previous) / max(below[bound] - previous, 1e-9)
            break
        lower, previous = bound, below[bound]
    return round(1000 * lower, 3)


def _groups(now: Scraped) -> dict[str, dict[str, int]]:
    prefix, suffix = "kohort_group_coordinator_", "_groups"
    return {
        name.removeprefix(prefix).removesuffix(suffix): {
            state: int(count) for state, count in now.by("state", name).items()
        }
        for name in sorted(now.by_name)
        if name.startswith(prefix) and name.endswith(suffix) and name != f"{prefix}groups"
    }


def _logs(now: Scraped, before: Scraped, seconds: float) -> list[LogGrowth]:
    sizes = now.by("topic", "kohort_log_size_bytes")
    ends, earlier = now.by("topic", "kohort_log_end_offset"), before.by("topic", "kohort_log_end_offset")
    known = before.by("topic", "kohort_log_size_bytes")
    partitions = Counter(dict(labels)["topic"] for labels in now.by_name.get("kohort_log_size_bytes", {}))
    found = [
        LogGrowth(
            topic,
            partitions[topic],
            int(size),
            round((size - known.get(topic, size)) / seconds, 1),
            round((ends[topic] - earlier.get(topic, ends[topic])) / seconds, 1),
        )
        for topic, size in sizes.items()
    ]
    return sorted(found, key=lambda each: (-each.bytes_per_second, -each.size_bytes, each.topic))


def _authorization() -> dict[str, str]:
    """The token for the metrics of other machines. Raises: ConfigError: as `read_token`."""
    import os

    from kohort.security.http_access import read_token

    token = read_token(None, os.environ)
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def scrape(address: str) -> Scraped:
    """
    Read the metrics of a broker.

    Raises:
        ConfigError: the address has another form.
        KohortError: nothing there answers with metrics.
    """
    host, separator, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    if not separator or not host or not is_port(port):
        raise ConfigError(f"--metrics must be HOST:PORT, for example {DEFAULT_METRICS}; it is {address!r}")
    hint = f"start the broker with `kohort serve --metrics-port {port}`, or give its address by --metrics"
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics", headers=_authorization())
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise KohortError(f"no metrics at {address}: {error}; {hint}") from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise KohortError(f"no metrics at {address}: it answers {response.status} {response.reason}; {hint}")
    return Scraped(body.decode(), time.monotonic())


def top(
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            envvar="KOHORT_METRICS",
            help="Address of the broker's metrics: the port is that of `kohort serve --metrics-port`.",
        ),
    ] = DEFAULT_METRICS,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.1, max=SECONDS_MAX, help="Time between two views."),
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one view with the numbers since the start of the broker, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each view.")] = False,
) -> None:
    """
    Show what a broker does: requests by API with rates and durations, groups by state, connections, growth of the logs.

    On a terminal the view is renewed until q is pressed. In a pipe each view is printed below the one before, until the pipe
    is closed. Rates and durations are those since the view before; the first view shows those since the start of the broker.
    """
    if once:
        _print(view(scrape(metrics), None), as_json=as_json)
    elif as_json or not sys.stdout.isatty():
        _print_views(metrics, interval, as_json=as_json)
    else:
        _live(metrics, interval)


def _print(shown: View, *, as_json: bool, is_one_line: bool = False) -> None:
    if as_json and is_one_line:
        sys.stdout.write(msgspec.json.encode(shown).decode() + "\n")
    elif as_json:
        print_json(shown)
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(render(shown, None))
    sys.stdout.flush()


def _print_views(metrics: str, interval: float, *, as_json: bool) -> None:
    before = None
    while True:
        now = scrape(metrics)
        _print(view(now, before), as_json=as_json, is_one_line=True)
        before = now
        time.sleep(interval)


def _live(metrics: str, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    before = scrape(metrics)
    with _keys() as pressed, Live(render(view(before, None), console.height), console=console, screen=True) as live:
        while not pressed(interval):
            try:
                now = scrape(metrics)
            except KohortError as error:
                live.update(f"{error}\n\nTrying again; q quits.")
                continue
            live.update(render(view(now, before), console.height))
            before = now


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Read single keys: the value waits some seconds for one and tells whether it was `q`."""
    import select
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([descriptor], [], [], left)
            keys = os.read(descriptor, 64) if ready else b"-"
            if not keys or b"q" in keys.lower():
                return True
        return False

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def render(shown: View, height: int | None) -> "RenderableType":
    """A view as text and tables, cut to the height of a terminal in lines."""
    from rich.console import Group
    from rich.text import Text

    groups = "  ".join(
        f"{protocol}: {', '.join(f'{state} {count}' for state, count in states.items() if count) or 'none'}"
        for protocol, states in shown.groups.items()
    )
    head = (
        f"up {shown.uptime_seconds:,.0f} s   cpu {shown.cpu:.0%}   memory {_bytes(shown.resident_bytes)}   "
        f"files {shown.open_files:,}   connections {shown.connections:,} ({shown.connections_per_second:,.1f} new/s)   "
        f"unsent {_bytes(shown.unsent_bytes)}\n"
        f"in {_bytes(shown.bytes_in_per_second)}/s   out {_bytes(shown.bytes_out_per_second)}/s   "
        f"open transactions {shown.transactions:,}   of the last {shown.seconds:,.1f} s\n"
        f"groups  {groups}\n"
    )
    room = 1_000 if height is None else max(height - 9, 4)
    logs = shown.logs[: min(LOGS_SHOWN, room // 2)]
    requests = shown.requests[: max(room - len(logs), 2)]
    numbers = [
        (each.api, f"{each.per_second:,.1f}", f"{each.requests:,}", _ms(each.p50_ms), _ms(each.p99_ms))
        for each in requests
    ]
    growth = [
        (
            each.topic,
            f"{each.partitions:,}",
            _bytes(each.size_bytes),
            f"{_bytes(each.bytes_per_second)}/s",
            f"{each.records_per_second:,.1f}",
        )
        for each in logs
    ]
    return Group(
        Text(head),
        _table(("API", "REQUESTS/S", "REQUESTS", "P50 MS", "P99 MS"), numbers),
        Text(),
        _table(("LOG", "PARTITIONS", "SIZE", "GROWTH", "RECORDS/S"), growth),
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _bytes(value: float) -> str:
    """A size with a unit: 1.5 MB."""
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1_000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1_000
    return f"{value:,.1f} GB"
