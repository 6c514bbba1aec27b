"""
Coverage of a run: scripts, scenarios and answers by API, and scripts by subject.

A script is a file, with all its versions and cases, or one generated scenario. A script counts for an API if an answer of that
API was compared in it, and for a subject if it counts for one of its APIs.
"""

from collections import defaultdict
from typing import Any

import msgspec

from kohort_lab.conformance.comparison_run import Report
from kohort_lab.conformance.scenarios.script import APIS

COLUMNS = ("api", "scripts", "written", "generated", "scenarios", "answers", "different")

GROUPS = "classic groups and offsets"
CONSUMER_GROUPS = "consumer groups"
SHARE_GROUPS = "share groups"
TRANSACTIONS = "transactions"
SUBJECTS: dict[str, frozenset[str]] = {
    GROUPS: frozenset(
        {
            "JoinGroup",
            "SyncGroup",
            "Heartbeat",
            "LeaveGroup",
            "OffsetCommit",
            "OffsetFetch",
            "OffsetDelete",
            "DescribeGroups",
            "ListGroups",
            "DeleteGroups",
        }
    ),
    CONSUMER_GROUPS: frozenset({"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}),
    SHARE_GROUPS: frozenset(
        {
            *("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"),
            *("DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
        }
    ),
    "records": frozenset(
        {
            *("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "InitProducerId", "DeleteRecords"),
            *("DescribeProducers", "WriteTxnMarkers"),
        }
    ),
    TRANSACTIONS: frozenset(
        {
            *("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
            *("DescribeTransactions", "ListTransactions"),
        }
    ),
    "topics and configurations": frozenset(
        {
            "Metadata",
            "CreateTopics",
            "DeleteTopics",
            "CreatePartitions",
            "DescribeTopicPartitions",
            "DescribeConfigs",
            "AlterConfigs",
            "IncrementalAlterConfigs",
            "ListConfigResources",
        }
    ),
    "the connection": frozenset({"ApiVersions", "FindCoordinator", "DescribeCluster"}),
}

_GENERATED = "generated-"


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        name: an API or a subject.
        written, generated: scripts, as files and from seeds.
        scenarios: of these scripts, one for each case and version.
        answers: number of answers compared.
        different: number of answers that differ.
    """

    name: str
    written: int
    generated: int
    scenarios: int
    answers: int
    different: int

    @property
    def scripts(self) -> int:
        return self.written + self.generated

    def as_dict(self) -> dict[str, Any]:
        return {"api": self.name} | {column: getattr(self, column) for column in COLUMNS[1:]}


def by_api(report: Report) -> list[Covered]:
    """Coverage by API, in the order of the API keys."""
    asked = {api for comparison in report.comparisons for api, _, _ in comparison.answers}
    return [_covered(report, api, frozenset({api})) for api in sorted(asked, key=APIS.__getitem__)]


def by_subject(report: Report) -> list[Covered]:
    found = [_covered(report, name, apis) for name, apis in SUBJECTS.items()]
    return [each for each in found if each.scripts]


def sentence(subject: Covered) -> str:
    return (
        f"{subject.name}: {subject.scripts} scripts ({subject.written} written, {subject.generated} generated),"
        f" {subject.scenarios} scenarios, {subject.answers} answers compared, {subject.different} different"
    )


def _covered(report: Report, name: str, apis: frozenset[str]) -> Covered:
    scenarios: dict[str, set[str]] = defaultdict(set)
    answers = different = 0
    for comparison in report.comparisons:
        own = [is_same for api, _, is_same in comparison.answers if api in apis]
        if own:
            script = (
                comparison.scenario if comparison.scenario.startswith(_GENERATED) else comparison.scenario.split("/")[0]
            )
            scenarios[script].add(comparison.scenario)
            answers += len(own)
            different += own.count(False)
    generated = sum(script.startswith(_GENERATED) for script in scenarios)
    return Covered(
        name=name,
        written=len(scenarios) - generated,
        generated=generated,
        scenarios=sum(map(len, scenarios.values())),
        answers=answers,
        different=different,
    )
