"""The recorded decisions of Apache Kafka 4.4.0 with StandardAuthorizer, and their replay in process."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.broker.ports import NoResponse
from kohort.model.errors import ErrorCode
from kohort.security.acls.acl import PatternType, Permission
from kohort.security.acls.filters import ANY
from kohort.security.operations import Operation, ResourceType
from kohort.storage.log import LogStore
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from tests.broker.access.json_messages import json_of, request_of
from tests.broker.access.secured import Users
from tests.broker.harness import CLUSTER_ID

DATA = Path(__file__).parents[2] / "data" / "security"
BATCH_TIMESTAMP_MS = 1_700_000_000_000
TRIES = 200
APIS = {api.api_name: api for api in ApiKey if not api.is_between_nodes}
SETTINGS = {
    "offsets_topic_num_partitions": "4",
    "transaction_state_log_num_partitions": "4",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "group_initial_rebalance_delay_ms": "0",
    "group_consumer_assignment_interval_ms": "0",
    "log_retention_ms": "-1",
    "delegation_token_secret_key": "the key of the tokens",
    "authorizer_class_name": CLASS_NAME,
    "super_users": "User:admin",
}
"""Those of the recorded node; the other settings are defaults."""
AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS)
NOT_SERVED = ("Share", "InitializeShare", "Streams")
"""Preparations with these APIs are refused; the rows with which that makes a difference are listed."""
_KEYS = frozenset(
    """
    name topic topicId topicName partition partitionIndex index partitionId groupId transactionalId key resourceName user
    apiKey brokerId nodeId memberId feature principalName principal producerId logDir entity entityType
    """.split()  # noqa: SIM905 -- a table of words
)
"""An element of a list with one of these fields has no place in an order."""


@cache
def rows() -> list[dict[str, Any]]:
    """All rows but those whose answer is a defect of Kafka."""
    text = gzip.decompress((DATA / "acl-matrix-4.4.0.jsonl.gz").read_bytes()).decode()
    found = [json.loads(line) for line in text.splitlines()]
    return [row for row in found if not row.get("defect")]


class FailedError(AssertionError):
    """A preparation has not succeeded."""


class Replay:
    """A broker with the fixtures of the recording; rows are asked one after the other."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        node: VirtualNode | None = None,
        store: LogStore | None = None,
    ) -> None:
        self.broker = Users(node=node, store=store, **SETTINGS, **(settings or {}))
        self._fixed: dict[str, Any] = {}
        fixtures = json.loads((DATA / "acl-matrix-setup-4.4.0.json").read_text())["fixtures"]
        for step in fixtures:
            self._prepare(step, self._fixed)

    def difference(self, row: dict[str, Any]) -> str | None:
        """Ask what the row asks; how the answer differs from the recorded one, None if it does not."""
        captured = dict(self._fixed)
        try:
            for step in row.get("prepare", ()):
                self._prepare(step, captured)
            if "before" in row:
                self._allow(row["acls_before"], captured)
                for step in row["before"]:
                    answer = self._ask(row["user"], step, captured)
                    _capture(step, answer, captured)
            self._allow(row["acls"], captured)
            answer = self._ask_until_ready(row["user"], row, captured)
            return self._compare(row, answer, captured)
        finally:
            captured["answer"] = answer if "answer" in locals() else None
            for step in row.get("cleanup", ()):
                self._prepare(step, captured, is_lenient=True)
            self.broker.disconnect()

    def _compare(self, row: dict[str, Any], answer: Any, captured: dict[str, Any]) -> str | None:
        if row.get("closed") or row.get("silent"):
            wanted = NoResponse.CLOSE_CONNECTION if row.get("closed") else NoResponse.NO_OP
            return None if answer is wanted else f"is no {wanted}: {answer}"
        if isinstance(answer, NoResponse):
            return f"{answer}"
        return different(row["response"], answer, captured, "")

    def _allow(self, acls: Sequence[Mapping[str, str]], captured: dict[str, Any]) -> None:
        """Have these ACLs and no others."""
        fields = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        everything = m.DeleteAclsFilter(
            **dict.fromkeys(fields, ANY), resource_name_filter=None, principal_filter=None, host_filter=None
        )
        (deleted,) = self.broker.ask_as(
            "admin", ApiKey.DELETE_ACLS, m.DeleteAclsRequest(filters=[everything])
        ).filter_results
        creations = [
            m.CreateAclsRequestAclCreation(
                resource_type=ResourceType[acl["resource"]],
                resource_name=filled(acl["name"], captured),
                resource_pattern_type=PatternType[acl.get("pattern", "LITERAL")],
                principal=acl.get("principal", "User:alice"),
                host=acl.get("host", "*"),
                operation=Operation[acl["operation"]],
                permission_type=Permission[acl["permission"]],
            )
            for acl in acls
        ]
        created = self.broker.ask_as("admin", ApiKey.CREATE_ACLS, m.CreateAclsRequest(creations=creations)).results
        assert not any(result.error_code for result in (deleted, *created)), created

    def _prepare(self, step: dict[str, Any], captured: dict[str, Any], *, is_lenient: bool = False) -> None:
        accepted = {0, *step.get("accept", ())}
        if step.get("lenient") or is_lenient or step["api"].startswith(NOT_SERVED):
            self._ask_until_ready(step.get("user", "admin"), step, captured)
            return
        answer: Any = None
        for _ in range(TRIES):
            answer = self._ask(step.get("user", "admin"), step, captured)
            if set(errors_in(answer)) <= accepted and ("until" not in step or _at(answer, step["until"]) is not None):
                _capture(step, answer, captured)
                return
            self.broker.node.advance(50)
        raise FailedError(f"{step['api']} is answered {answer}")

    def _ask_until_ready(self, user: str, step: dict[str, Any], captured: dict[str, Any]) -> Any:
        answer: Any = None
        for _ in range(TRIES):
            answer = self._ask(user, step, captured)
            if not set(errors_in(answer)) & set(AGAIN):
                return answer
            self.broker.node.advance(50)
        return answer

    def _ask(self, user: str, step: dict[str, Any], captured: dict[str, Any]) -> Any:
        api = APIS.get(step["api"])
        if api is None:
            return NoResponse.CLOSE_CONNECTION
        if not api.oldest <= step["version"] <= self.broker.broker.versions[api][1]:
            return NoResponse.CLOSE_CONNECTION
        request = request_of(api, filled(step["request"], captured))
        answer = self.broker.ask_as(user, api, request, step["version"])
        return answer if isinstance(answer, NoResponse) else json_of(api, step["version"], answer)


def _capture(step: dict[str, Any], answer: Any, captured: dict[str, Any]) -> None:
    for name, path in step.get("capture", {}).items():
        captured[name] = _at(answer, path)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = None if value is None else value[part]
    return value


def filled(value: Any, captured: dict[str, Any]) -> Any:
    """The value with what was captured, and with the batches that it describes."""
    if isinstance(value, dict):
        if "$batch" in value:
            return _batch(filled(value["$batch"], captured)).hex()
        return {key: filled(one, captured) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, captured) for one in value]
    if isinstance(value, str) and value.startswith("$"):
        return _at(captured, value[1:]) if value[1:].partition(".")[0] in captured else value
    if isinstance(value, str) and "$" in value:
        value = value.replace("{$cluster}", CLUSTER_ID)
        for name, one in captured.items():
            value = value.replace(f"${name}", str(one))
    return value


def _batch(wanted: dict[str, Any]) -> bytes:
    records = [BatchRecord(None, value.encode()) for value in wanted["values"]]
    return build_batch(
        records,
        timestamp_ms=BATCH_TIMESTAMP_MS,
        producer_id=wanted.get("producerId", -1),
        producer_epoch=wanted.get("producerEpoch", -1),
        base_sequence=wanted.get("baseSequence", -1),
        transactional=wanted.get("transactional", False),
    )


def errors_in(answer: Any) -> Iterator[int]:
    """The error codes of an answer, wherever they are."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key.lower().endswith("errorcode") and isinstance(value, int):
                yield value
            else:
                yield from errors_in(value)
    elif isinstance(answer, list):
        for one in answer:
            yield from errors_in(one)


def different(wanted: Any, found: Any, captured: dict[str, Any], path: str) -> str | None:
    """Where and how an answer differs from the recorded one; None if it does not."""
    wanted = filled(wanted, captured)
    if wanted == "$any":
        return None
    if wanted == "$some":
        return f"{path}: {found!r} says nothing" if found in (None, "", [], -1) else None
    if isinstance(wanted, dict) and "$length" in wanted:
        return None if len(found) == wanted["$length"] else f"{path}: {len(found)} elements, not {wanted['$length']}"
    if isinstance(wanted, dict) and ("$contains" in wanted or "$errors_of" in wanted):
        elements = wanted["$contains"] if "$contains" in wanted else wanted["$errors_of"]
        return _unmatched(elements, found, captured, path, may_have_more=True)
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(wanted.keys() | found.keys()):
            if key not in wanted or key not in found:
                return f"{path}.{key}: only {'wanted' if key in wanted else 'found'}: {wanted.get(key, found.get(key))}"
            difference = different(wanted[key], found[key], captured, f"{path}.{key}")
            if difference:
                return difference
        return None
    if isinstance(wanted, list) and isinstance(found, list):
        if wanted and isinstance(wanted[0], dict) and wanted[0].keys() & _KEYS:
            return _unmatched(wanted, found, captured, path, may_have_more=False)
        if len(wanted) != len(found):
            return f"{path}: {found}, not {wanted}"
        if path.endswith(".subscribedTopicNames"):  # of a share group: in the order of a Java set
            wanted, found = sorted(wanted), sorted(found)
        places = range(len(wanted))
        return next(filter(None, (different(wanted[i], found[i], captured, f"{path}.{i}") for i in places)), None)
    return None if wanted == found else f"{path}: {found!r}, not {wanted!r}"


def _unmatched(
    wanted: Sequence[Any], found: Sequence[Any], captured: dict[str, Any], path: str, *, may_have_more: bool
) -> str | None:
    left = list(found)
    for number, one in enumerate(wanted):
        differences = [different(one, other, captured, f"{path}.{number}") for other in left]
        if None not in differences:
            return next(iter(differences), f"{path}.{number}: missing {one}")
        left.pop(differences.index(None))
    return f"{path}: more than wanted: {left}" if left and not may_have_more else None
