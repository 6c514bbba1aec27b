"""
Generates docs/apis.md: the versions of every API by release, compared with those of Apache Kafka
(`tests/data/api-versions-*.json`), what a user needs (`kohort.broker.access.table`), and what its requests may cost
(`kohort.broker.apis.api_table`).

    .venv/bin/python tools/api_table.py

`--check` writes nothing and fails if the page is not up to date; the test suite does the same.
"""

import json
import sys
from pathlib import Path

from kohort.broker.access.checks import Need, Open
from kohort.broker.access.table import ACCESS_TABLE
from kohort.broker.apis.api_table import API_TABLE, BYTES_OF_UNIT, LISTENER_TABLE, UNITS_OF_CLASS, Cost, served_versions
from kohort.wire.apis import RELEASES, ApiKey, short_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/apis.md"

HEAD = """\
# APIs

Every API of Apache Kafka's brokers, with the versions that Kohort names in ApiVersions as a broker of each
[release](releases.md). The page is generated: `tools/api_table.py` reads the versions from the code, and compares them with the
recorded answers of Apache Kafka. Kafka lists the APIs of client telemetry only with a receiver of client metrics.

{differences}

"""
COSTS = """
## Costs

What one request may cost at most. A unit of work is a call of a function, or work in C that takes as long: {bytes} bytes
that are decompressed, a character of an expression that is compiled; a Unicode class of an expression counts as {classes}.
A step is what happens between two turns of the event loop. Memory is what the broker takes beside the frame of the request
and its answer. [Limits](limits.md) has the bounds by name. The test suite sends the worst requests of every API and compares
them with these bounds.

| APIs and listeners | elements | bytes, and decompressed | memory, MiB | units of a step | bounds of one element |
|---|---|---|---|---|---|
"""
PERMISSIONS = """
## Permissions

What a user needs with `authorizer.class.name`. "Each" is decided for every element of a request: what is refused has an error
in the answer (`TOPIC_AUTHORIZATION_FAILED` and the like), and the rest is done. All else is refused as a whole. Who may not
describe a topic, a group or a transactional id is not told whether it exists.

| API | needs |
|---|---|
"""
NO_SASL = "refused: no listener uses SASL"
NO_SHARE = "refused as by Kafka with level 0 of `share.version`"
NO_STREAMS = "refused as by Kafka with level 0 of `streams.version`"
ACLS = "served with an authorizer; SECURITY_DISABLED without one, as by Kafka"
BETWEEN_NODES = "version 0, between the nodes of a cluster, on the inter-broker listener; ApiVersions does not name it"
STATES = {
    ApiKey.PRODUCE: "served from version 3 on; the versions before are listed because clients look for them, as in Kafka",
    ApiKey.FETCH: "served; fetches of followers are refused",
    ApiKey.INIT_PRODUCER_ID: "served, without two-phase commit (version 6)",
    ApiKey.SASL_HANDSHAKE: NO_SASL,
    ApiKey.SASL_AUTHENTICATE: NO_SASL,
    ApiKey.DESCRIBE_ACLS: ACLS,
    ApiKey.CREATE_ACLS: ACLS,
    ApiKey.DELETE_ACLS: ACLS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: "served; there is one log directory",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "served; the credentials have no effect without SASL",
    ApiKey.DESCRIBE_QUORUM: "served; the catalog of topics stands for the metadata log",
    ApiKey.UPDATE_FEATURES: "served; a level of `group.version` is effective at the next start",
    ApiKey.ENVELOPE: BETWEEN_NODES,
    ApiKey.ALLOCATE_PRODUCER_IDS: BETWEEN_NODES,
    ApiKey.UNREGISTER_BROKER: "refused for this broker",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "refused: there is no plugin for descriptions of topologies",
    ApiKey.UNREGISTER_CONTROLLER: "served; no controller is forgotten",
    ApiKey.SHARE_GROUP_HEARTBEAT: NO_SHARE,
    ApiKey.SHARE_GROUP_DESCRIBE: NO_SHARE,
    ApiKey.SHARE_FETCH: NO_SHARE,
    ApiKey.SHARE_ACKNOWLEDGE: NO_SHARE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: NO_SHARE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: NO_SHARE,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: NO_SHARE,
    ApiKey.PUSH_TELEMETRY: "served; the metrics are part of `/metrics`",
    ApiKey.ADD_RAFT_VOTER: "refused: the quorum has one node",
    ApiKey.REMOVE_RAFT_VOTER: "refused: the quorum has one node",
    ApiKey.STREAMS_GROUP_HEARTBEAT: NO_STREAMS,
    ApiKey.STREAMS_GROUP_DESCRIBE: NO_STREAMS,
}
"""All other APIs are served in full."""
KAFKA_WITH_A_RECEIVER = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""APIs that Apache Kafka lists only if it has a receiver of client metrics, which it does not ship."""


def recorded(release: str) -> dict[int, tuple[int, int]]:
    """The versions in the answer of a release of Apache Kafka, by key."""
    text = (ROOT / f"tests/data/api-versions-{release}.json").read_text()
    return {int(key): (low, high) for key, (low, high) in json.loads(text).items()}


def page() -> str:
    """The text of docs/apis.md."""
    kafka = {release: recorded(release) for release in RELEASES}
    rows = []
    differences = []
    for key in ApiKey:
        cells = []
        for release, theirs in kafka.items():
            served = served_versions(release).get(key)
            ours = None if served is None else (key.oldest_advertised, served[1])
            cells.append(_range(ours))
            if key not in KAFKA_WITH_A_RECEIVER and theirs.get(int(key)) != ours:
                differences.append(f"{key.api_name} of {release}")
        rows.append(f"| {int(key)} | {key.api_name} | {' | '.join(cells)} | {STATES.get(key, 'served')} |\n")
    releases = " | ".join(map(short_name, RELEASES))
    head = f"| key | API | {releases} | state |\n|---|---|{'---|' * len(RELEASES)}---|\n"
    sentence = f"Ranges that differ from Apache Kafka's: {len(differences)} ({', '.join(differences) or 'none'})."
    return HEAD.format(differences=sentence) + head + "".join(rows) + _permissions() + _costs()


def _permissions() -> str:
    rows = []
    for key, checks in ACCESS_TABLE.items():
        needs = [need for check in checks for need in check.needs]
        reasons = [check.reason for check in checks if isinstance(check, Open) and not needs]
        rows.append(f"| {key.api_name} | {'; '.join(map(_need, needs)) or f'nothing: {reasons[0]}'} |\n")
    return PERMISSIONS + "".join(rows)


def _need(need: Need) -> str:
    detail = f" ({need.detail})" if need.detail not in ("", "or") else ""
    return f"{'or ' if need.detail == 'or' else ''}{need.operation.name} of {need.resource_type.name}{detail}"


def _costs() -> str:
    """One row for all APIs of the same cost."""
    names: dict[Cost, list[str]] = {}
    for key, api in API_TABLE.items():
        names.setdefault(api.cost, []).append(key.api_name)
    for listener, cost in LISTENER_TABLE.items():
        names.setdefault(cost, []).append(listener)
    return COSTS.format(bytes=BYTES_OF_UNIT, classes=_number(UNITS_OF_CLASS)) + "".join(
        f"| {', '.join(found)} | {_number(cost.elements)} | {_number(cost.request_bytes)} | {cost.memory >> 20} "
        f"| {_number(cost.step)} | {cost.bounded_by or '-'} |\n"
        for cost, found in names.items()
    )


def _number(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _range(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "-"
    low, high = versions
    return str(low) if low == high else f"{low} to {high}"


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        print("docs/apis.md is not up to date: run .venv/bin/python tools/api_table.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
