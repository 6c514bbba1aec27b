"""
`python -m bench.stores`: commits on 64 connections of one node on a PostgreSQL database, beside a broker with a data directory.

Both flush what they acknowledge to the same disk, in alternating rounds. Then the node has a rate that it can keep, for the
latency. The database tells what a commit costs it: transactions, bytes of its write-ahead log, and processor time.
"""

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from bench.load import closed_loop, open_loop
from bench.load.client import open_socket
from bench.load.requests import commit_lanes, prepare
from kohort.testing.served import ServedKohort
from kohort_lab.database import Database

CONNECTIONS: Final = 64
GROUPS: Final = 64
_COUNTS: Final = """
SELECT (SELECT wal_bytes FROM pg_stat_wal), (SELECT sum(xact_commit) FROM pg_stat_database),
  (SELECT sum(n_tup_upd) FROM pg_stat_user_tables), (SELECT sum(n_tup_hot_upd) FROM pg_stat_user_tables)
"""


class DatabaseCosts:
    """What the database has done since the last call."""

    def __init__(self, database: Database) -> None:
        self._sql = database.connect()
        self._server = psutil.Process(database.pid)
        self._last = self._counts()

    def _counts(self) -> list[float]:
        self._sql.execute("SELECT pg_stat_clear_snapshot()")
        row = self._sql.execute(_COUNTS).fetchone()
        assert row is not None, "a SELECT without FROM has one row"
        processes = [self._server, *self._server.children()]
        times = [process.cpu_times() for process in processes]
        return [*map(float, row), sum(each.user + each.system for each in times)]

    def per(self, commits: int) -> dict[str, float]:
        counts = self._counts()
        wal, transactions, updates, hot, cpu_s = (now - last for now, last in zip(counts, self._last, strict=True))
        self._last = counts
        return {
            "transactions_per_commit": transactions / commits,
            "wal_bytes_per_commit": wal / commits,
            "cpu_us_per_commit": 1e6 * cpu_s / commits,
            "hot_share": hot / updates if updates else 0.0,
        }


def measured(rounds: int, seconds: float, rate: int, directory: Path) -> dict[str, Any]:
    with ExitStack() as stack:
        database = Database(on_disk=directory).make_store()
        stack.callback(database.close)
        embedded = stack.enter_context(ServedKohort(directory / "embedded"))
        node = stack.enter_context(ServedKohort(directory / "node", store=database.url))
        lanes = {}
        for name, served in (("embedded", embedded), ("node", node)):
            prepare(served.port)
            lanes[name] = commit_lanes([open_socket(served.port) for _ in range(CONNECTIONS)], GROUPS, 1)
        costs = DatabaseCosts(database)
        pairs = []
        for _ in range(rounds):
            pair = {"embedded": closed_loop.run(lanes["embedded"], seconds)}
            costs.per(1)
            pair["node"] = closed_loop.run(lanes["node"], seconds)
            pairs.append((pair, costs.per(pair["node"].requests)))
        rates = {name: statistics.median(pair[name].per_second for pair, _ in pairs) for name in lanes}
        steady = open_loop.run_at_rate(lanes["node"], seconds, rate)
    return {
        **{f"{name}_per_second": rate for name, rate in rates.items()},
        "ratio": statistics.median(pair["node"].per_second / pair["embedded"].per_second for pair, _ in pairs),
        "steady_per_second": rate,
        "steady_p50_ms": steady.p50_us / 1e3,
        "steady_p99_ms": steady.p99_us / 1e3,
        **{name: statistics.median(cost[name] for _, cost in pairs) for name in pairs[0][1]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description=__doc__.strip().partition("\n")[2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=int, default=6_000, help="commits a second of the measure of latency")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        print(json.dumps(measured(options.rounds, options.seconds, options.rate, Path(directory)), indent=2))


if __name__ == "__main__":
    main()
