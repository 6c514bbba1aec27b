"""
What the tools print, without that which differs from run to run.

`python -m tests.clients.tools.outputs` asks Apache Kafka, and keeps its answers for the tests; names of subjects restrict it.
"""

import json
import re
import sys
import tempfile
import time
from pathlib import Path

from kohort.testing.kafka import KafkaNode
from tests.clients.jvm import Jvm
from tests.clients.secured import secured_kafka
from tests.clients.tools.calls import FILES, SUBJECTS, TOOLS, Call
from tests.clients.tools.runner import Outcome, ToolRunner

RECORDED = Path(__file__).parents[2] / "data" / "clients" / "tools-4.4.0.json"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""Of either broker."""
OF_SUBJECTS = {
    "acls": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
}
"""Further settings that a subject needs."""

_PAUSE_S = 0.5
NEED_LOGIN = ("delegation-tokens",)
"""Subjects for brokers of `tests.clients.secured`."""

Output = dict[str, int | list[str]]
"""Exit code, lines of stdout and of stderr."""

_HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")
_VARIABLE = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"(127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r"(?<=topicId=)[\w-]{22}|(?<=TopicId: )[\w-]{22}|(?<=Cluster ID: )\S+|(?<=ClusterId: )\S+", "ID"),
    (r'(?<="topicId":")[\w-]{22}', "ID"),
    (r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "-UUID"),
    (r"\b1[789]\d{11}\b", "TIME"),
    (r'(?<="logDir":")[^"]*|(?<="log_dirs":\[")/[^"]*', "DIRECTORY"),
    (r"(?<=127.0.0.1) +\d+ +null", "PORT null"),
    # The tools print producer ids in columns, and in the values of the transaction log.
    (r'(?<=performance 1 )\d+|(?<=1 performance )\d+|\d+(?= 1 0 -1 TIME)|(?<="producerId":)\d+', "PRODUCER"),
    (r"(?<=TIME )\d+$", "MS"),
    # A controller within the broker has no directory and no listener of its own.
    (r'(?<=LeaderEpoch: )\d+|(?<=HighWatermark: )\d+|, "directoryId".*(?=})', ""),
    (r"(?<=^1 )[\w-]{22} \d+ ", ""),
    (r"\d+ ms ago", "AGO"),
    (r"(?<= Epoch: )\d+", "EPOCH"),
    (_HMAC.pattern, "HMAC"),
    (r"(?<=tokenId : )\S{22}|^[\w-]{22}(?= HMAC)", "ID"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d\b", "DATE"),
)
"""Patterns, and the words that stand for what they match."""
_FIGURES = (
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\d\d:\d\d:\d\d:\d{3}|\d+\.\d+|(?<== )\d+|\d+(?= ms)|(?<=, )\d{1,3}(?=, )", "N"),
)
_MEASURING = ("producer-perf-test", "consumer-perf-test", "e2e-latency")


def normalized(call: Call, outcome: Outcome) -> Output:
    return {"code": outcome.code, "out": _lines(call, outcome.out), "err": _lines(call, outcome.err)}


def _lines(call: Call, text: str) -> list[str]:
    # Formatters of coordinator records write no ends of lines.
    lines = [
        each for each in text.replace('}{"key"', '}\n{"key"').splitlines() if not each.startswith(("\tat ", "\t... "))
    ]
    kept = [
        line
        for line in (_plain(call, each) for each in lines)
        if line and call.shown in line and not (call.hidden and re.search(call.hidden, line))
    ]
    return sorted(kept) if call.is_sorted else kept


def _plain(call: Call, line: str) -> str:
    line = " ".join(line.split())
    for pattern, word in (*_VARIABLE, *(_FIGURES if call.tool in _MEASURING else ())):
        line = re.sub(pattern, word, line)
    return line.strip()


def run(
    runner: ToolRunner, bootstrap: str, calls: tuple[Call, ...], directory: Path, *, pause_s: float = 0
) -> list[Output]:
    """
    Run the calls of a subject, one after the other.

    Args:
        pause_s: between two of them. A broker of Kafka follows its controller some time later.
    """
    files = {name: str(directory / f"{name}.json") for name in FILES}
    for name, path in files.items():
        Path(path).write_text(FILES[name])
    hmac = ""
    outputs = []
    for call in calls:
        outcome = runner.run(TOOLS[call.tool], call.arguments(bootstrap, files, hmac), call.stdin, call.until)
        hmac = "".join(_HMAC.findall(outcome.out)[-1:]) or hmac
        outputs.append(normalized(call, outcome))
        time.sleep(pause_s)
    return outputs


def recorded(subject: str) -> list[Output]:
    """What Apache Kafka's answers made the tools print."""
    outputs: list[Output] = json.loads(RECORDED.read_text())[subject]
    return outputs


def main(subjects: list[str]) -> None:
    found = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    asked = list(subjects or SUBJECTS)
    own = {*OF_SUBJECTS, *NEED_LOGIN}
    groups = [[subject for subject in asked if subject not in own], *([subject] for subject in asked if subject in own)]
    with Jvm() as jvm:
        runner = ToolRunner(jvm)
        for together in filter(None, groups):
            settings = SETTINGS | OF_SUBJECTS.get("".join(together[:1]), {})
            make = secured_kafka if together[0] in NEED_LOGIN else KafkaNode
            with tempfile.TemporaryDirectory() as directory, make(Path(directory), settings) as node:
                for subject in together:
                    found[subject] = run(runner, node.bootstrap, SUBJECTS[subject], Path(directory), pause_s=_PAUSE_S)
                    known = {name: found[name] for name in SUBJECTS if name in found}
                    RECORDED.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
