"""
`python -m bench.java_tools`: each server measured with the Java clients of Apache Kafka, by the tools of its release.

| tool                  | measures                                                                                      |
|-----------------------|-----------------------------------------------------------------------------------------------|
| `ProducerPerformance` | maximum produce rate, acks=all, over some partitions, with default batching                     |
| `ConsumerPerformance` | fetch rate of the same records by a group of one member, without its first rebalance            |
| `EndToEndLatency`     | latency of single records from the producer's send to the consumer's poll, acks=all             |

The clients have default settings and use more of the machine than the server. This shows what an application sees, and
`python -m bench` the limit of a server. Each round starts every server on a new directory; a JVM gets a short warm-up
that is not counted. Figures are medians of the rounds.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from bench.failures import FAILURES, reason
from bench.load.client import open_socket
from bench.load.requests import create_topic
from bench.servers.rivals import RIVALS, Rival, fresh, present
from kohort.testing.kafka import UnavailableKafkaError, java, kafka_jars

TOPIC: Final = "records"
WARM_UP_TOPIC: Final = "warm-up"
LATENCY_TOPIC: Final = "latency"
PARTITIONS: Final = 8
WARM_UP_RECORDS: Final = 50_000
LATENCY_RECORDS: Final = 2_000
TOOL_SECONDS_MAX: Final = 300.0
FLUSHES: Final = ("os", "commit")
_SENT: Final = re.compile(r"records sent, ([\d.]+) records/sec.* (\d+) ms 99th")
_COLUMNS: Final = 10
_RECEIVED: Final = 4
"""Output of ConsumerPerformance: number of columns, and the column with the number of records."""
_LATENCY: Final = re.compile(r"Avg latency: ([\d.]+) ms")


class ToolError(Exception):
    """A tool failed, or its output is not as expected."""


@dataclass(frozen=True, slots=True)
class ClientResults:
    """
    Results of the clients with one server.

    Attributes:
        sent_per_s, received_per_s: records per second.
        sent_p99_ms: 99th percentile from send to acknowledgement, at the maximum rate.
        end_to_end_ms: mean latency of single records.
    """

    flush: str
    rival: str
    sent_per_s: float
    sent_p99_ms: float
    received_per_s: float
    end_to_end_ms: float


def run_tool(name: str, *arguments: str) -> str:
    """
    Run a tool and return its output.

    Raises:
        ToolError: the tool failed.
    """
    command = (java(), "-Xmx512m", "-Dlog4j2.level=OFF", "-cp", f"{kafka_jars()}/*", f"org.apache.kafka.tools.{name}")
    try:
        done = subprocess.run(
            (*command, *arguments), capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} took more than {TOOL_SECONDS_MAX:g} s") from error
    if done.returncode:
        raise ToolError(f"{name}: {((done.stderr or done.stdout).strip().splitlines() or ['no output'])[-1]}")
    return done.stdout


def measure(flush: str, rival: Rival, records: int, record_bytes: int) -> ClientResults:
    """
    Raises:
        ToolError: a tool failed.
        One of `FAILURES`: the server did not start, or its process has ended.
    """
    with fresh(rival, flush) as server:
        with open_socket(server.port) as connection:
            for topic in (WARM_UP_TOPIC, TOPIC):
                create_topic(connection, topic, PARTITIONS)
            create_topic(connection, LATENCY_TOPIC, 1)
        server_option = ("--bootstrap-server", f"127.0.0.1:{server.port}")
        if rival.has_jit:
            _produce(server_option, WARM_UP_TOPIC, WARM_UP_RECORDS, record_bytes)
        sent_per_s, sent_p99_ms = sent(_produce(server_option, TOPIC, records, record_bytes))
        what = ("--topic", TOPIC, "--num-records", str(records), "--hide-header")
        received_per_s = received(run_tool("ConsumerPerformance", *server_option, *what), records)
        how = ("--producer-acks", "all", "--num-records", str(LATENCY_RECORDS), "--record-size", str(record_bytes))
        output = run_tool("EndToEndLatency", *server_option, "--topic", LATENCY_TOPIC, *how)
        end_to_end_ms = mean_latency_ms(output)
    return ClientResults(flush, rival.name, sent_per_s, sent_p99_ms, received_per_s, end_to_end_ms)


def _produce(server_option: tuple[str, str], topic: str, records: int, record_bytes: int) -> str:
    size = ("--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1")
    how = (*server_option, "--topic", topic, "--command-property", "acks=all")
    return run_tool("ProducerPerformance", *how, *size)


def sent(output: str) -> tuple[float, float]:
    """
    Parse the last line of ProducerPerformance: records per second, and the 99th percentile of latency in ms.

    Raises:
        ToolError: the output has another form.
    """
    last = (output.strip().splitlines() or [""])[-1]
    if found := _SENT.search(last):
        return float(found[1]), float(found[2])
    raise ToolError(f"ProducerPerformance printed {last!r}")


def received(output: str, records: int) -> float:
    """
    Parse the output of ConsumerPerformance: records per second of fetch time.

    Raises:
        ToolError: the output has another form, or records are missing.
    """
    columns = (output.strip().splitlines() or [""])[-1].split(",")
    if len(columns) == _COLUMNS and float(columns[_RECEIVED]) >= records:
        return float(columns[-1])
    raise ToolError(f"ConsumerPerformance printed {columns}; {records} records were expected")


def mean_latency_ms(output: str) -> float:
    """
    Parse the output of EndToEndLatency: mean latency in ms.

    Raises:
        ToolError: the output has another form.
    """
    if found := _LATENCY.search(output):
        return float(found[1])
    raise ToolError(f"EndToEndLatency printed {output.strip()[-200:]!r}")


def medians(rounds: Sequence[ClientResults]) -> Iterator[ClientResults]:
    for flush, name in dict.fromkeys((it.flush, it.rival) for it in rounds):
        own = [it for it in rounds if (it.flush, it.rival) == (flush, name)]
        yield ClientResults(
            flush,
            name,
            sent_per_s=median(it.sent_per_s for it in own),
            sent_p99_ms=median(it.sent_p99_ms for it in own),
            received_per_s=median(it.received_per_s for it in own),
            end_to_end_ms=median(it.end_to_end_ms for it in own),
        )


def table(seen: Sequence[ClientResults]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD)
    for heading in ("flush", "server"):
        shown.add_column(heading)
    for heading in ("sent/s", "acknowledged, p99 ms", "received/s", "one at a time, ms"):
        shown.add_column(heading, justify="right")
    for it in seen:
        figures = (
            f"{it.sent_per_s:,.0f}",
            f"{it.sent_p99_ms:,.0f}",
            f"{it.received_per_s:,.0f}",
            f"{it.end_to_end_ms:.2f}",
        )
        shown.add_row(it.flush, it.rival, *figures)
    return shown


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.java_tools", description="Measure each server with the Java clients of Apache Kafka."
    )
    names = ",".join(rival.name for rival in RIVALS)
    parser.add_argument("--rivals", default=names, metavar="NAMES", help=f"only these, of {names}")
    parser.add_argument("--flush", choices=FLUSHES, help="only this flush mode")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--bytes", type=int, default=200, help="size of each record")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    return parser.parse_args()


def main() -> int:
    arguments, console = parse(), Console(stderr=True)
    try:
        java()
        kafka_jars()
    except UnavailableKafkaError as error:
        print(error, file=sys.stderr)
        return 2
    rivals = present(arguments.rivals.split(","), lambda name, why: console.print(f"{name} is skipped: {why}"))
    rounds, failed = [], False
    for number in range(arguments.rounds):
        for flush in (arguments.flush,) if arguments.flush else FLUSHES:
            for rival in rivals:
                console.print(f"round {number + 1} of {arguments.rounds}: {rival.name}, {flush}", style="dim")
                try:
                    rounds.append(measure(flush, rival, arguments.records, arguments.bytes))
                except (ToolError, *FAILURES) as error:
                    console.print(f"{rival.name}, {flush}: {reason(error)}")
                    failed |= rival.name == "kohort"
    if arguments.json:
        print(json.dumps([asdict(it) for it in rounds], indent=2))
    else:
        Console().print(table(list(medians(rounds))))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
