"""
Every scenario of Apache Kafka's own tests of its coordinator runtime has a test here, and `docs/runtime.md` says which.

A test names the scenarios that it plays in brackets behind its first line. `python -m tests.runtime.test_scenarios` prints the
table of the docs.
"""

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "runtime.md"

# fmt: off
SCENARIOS = {
    "1": "load", "2": "load failure", "3": "load with an older epoch", "4": "reload after a failure, higher epoch",
    "5": "unload with a newer epoch", "6": "unload without an epoch", "7": "unload of what is unknown",
    "8": "unload with an older epoch", "9": "write", "10": "write, not active", "11": "operation throws",
    "12": "replay throws", "13": "append throws", "14": "write times out",
    "16": "transactional write", "17": "verification fails", "18": "end of a transaction", "19": "end times out",
    "20": "end cannot be written", "21": "end cannot be replayed", "22": "read", "23": "read, not active",
    "24": "read throws", "25": "read of all", "26": "close", "27": "metadata image", "28": "timer", "29": "reschedule",
    "30": "cancel", "31": "retry", "32": "own back-off", "33": "no retry", "34": "schedule if absent",
    "35": "transitions counted", "36": "load timed", "37": "load at the high watermark", "38": "load of an empty log",
    "39": "moves of the high watermark coalesce", "40": "a timeout ends with its write", "41": "large append",
    "42": "fixed linger", "43": "batch: too large", "44": "batch: append fails", "45": "batch: replay fails",
    "46": "batches and transactions", "47": "out of sync", "48": "loaded beyond the high watermark",
    "49": "not atomic: split", "50": "not atomic: oversized", "51": "not atomic: append fails", "52": "flush timed",
    "53": "purgatory timed",
    "L1": "completes once only", "L2": "age of a lingering batch", "L3": "a shard that fails on unload",
    "L4": "a completion that fails stops no other", "L5": "no empty batch is left", "L6": "adaptive linger",
    "L7": "oversized but compressible", "L8": "background executor",
}
# fmt: on

_MARKED = re.compile(r"^def (test_\w+)\((?:.*\n)??.*?#\s*\[([\w, ]+)\]$", re.MULTILINE)


def played() -> dict[str, list[str]]:
    """The tests of each scenario, by file and name."""
    found: dict[str, list[str]] = {number: [] for number in SCENARIOS}
    for path in sorted(HERE.glob("test_*.py")):
        for name, numbers in _MARKED.findall(path.read_text()):
            for number in numbers.split(", "):
                found[number].append(f"{path.stem.removeprefix('test_')}: {name.removeprefix('test_')}")
    return found


def table() -> list[str]:
    """The rows of the table in the docs."""
    return [f"| {number} | {SCENARIOS[number]} | {'<br>'.join(tests)} |" for number, tests in played().items()]


def test_every_scenario_is_played() -> None:
    assert [number for number, tests in played().items() if not tests] == []


def test_the_docs_tell_where() -> None:
    told = [line for line in DOCS.read_text().splitlines() if re.match(r"\| (L?\d+) \|", line)]
    assert told == table(), "the output of python -m tests.runtime.test_scenarios belongs into docs/runtime.md"


if __name__ == "__main__":
    print("\n".join(table()))
