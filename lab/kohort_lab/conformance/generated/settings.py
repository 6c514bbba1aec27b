"""Generated scenarios of settings: client quotas and SCRAM credentials, set, described and removed, valid and invalid."""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

_VISIBLE_MS = 200
"""The time until a broker of Apache Kafka has applied a change that its controller acknowledged."""
_NULL = {"$none": True}
_USERS = ("@u", "@v", "@u")
_CLIENT_IDS = ("@c", "@d")
_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_WRONG_KEYS = ("connection_creation_rate", "no.such.rate", "")
_VALUES = (1e6, 5e6, 1024.0, 1e9)
_WRONG_VALUES = (0.0, -1.0, 0.25, 1e30)


def write_settings_scenario(writer: ScenarioWriter) -> None:
    for _ in range(writer.random.randint(4, 8)):
        writer.pick((_alter_quotas, _alter_quotas, _alter_credentials))(writer)
        writer.pause(_VISIBLE_MS)
        for _ in range(writer.pick((1, 2))):
            writer.pick((_describe_quotas, _describe_quotas, _describe_credentials))(writer)


def _entity(writer: ScenarioWriter) -> dict[str, str]:
    kinds = writer.pick((("user",), ("client-id",), ("user", "client-id")))
    return {kind: writer.pick(_USERS if kind == "user" else _CLIENT_IDS) for kind in kinds}


def _alter_quotas(writer: ScenarioWriter) -> None:
    entries: dict[tuple[tuple[str, str], ...], Any] = {}
    for _ in range(writer.pick((1, 1, 2, 3))):
        entity = tuple(_entity(writer).items())
        entries[entity] = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [_op(writer, key) for key in dict.fromkeys(_key(writer) for _ in range(writer.pick((1, 2, 3))))],
        }
    writer.send("AlterClientQuotas", entries=list(entries.values()), validate_only=writer.chance(0.15))


def _key(writer: ScenarioWriter) -> str:
    return writer.pick(_WRONG_KEYS) if writer.chance(0.08) else writer.pick(_KEYS)


def _op(writer: ScenarioWriter, key: str) -> dict[str, Any]:
    value = writer.pick(_WRONG_VALUES) if writer.chance(0.1) else writer.pick(_VALUES)
    return {"key": key, "value": value, "remove": writer.chance(0.35)}


def _describe_quotas(writer: ScenarioWriter) -> None:
    components = [
        {"entity_type": kind, "match_type": 0, "match": name}
        if kind == "user" or len(entity) == 1 or writer.chance(0.7)
        else {"entity_type": kind, "match_type": writer.pick((1, 2)), "match": _NULL}
        for entity in (_entity(writer),)
        for kind, name in entity.items()
    ]
    writer.send("DescribeClientQuotas", components=components, strict=writer.chance(0.4))


def _alter_credentials(writer: ScenarioWriter) -> None:
    deletions = [{"name": writer.pick(_USERS), "mechanism": writer.pick((1, 2, 7))}] if writer.chance(0.4) else []
    upsertions = [
        {
            "name": writer.pick(_USERS),
            "mechanism": writer.pick((1, 2, 1, 2, 0)),
            "iterations": writer.pick((4_096, 8_192, 16_384, 100, 99_999)),
            "salt": {"$hex": "0a0b"},
            "salted_password": {"$hex": "0c0d"},
        }
        for _ in range(writer.pick((0, 1, 1, 2)))
    ]
    writer.send("AlterUserScramCredentials", deletions=deletions, upsertions=upsertions)


def _describe_credentials(writer: ScenarioWriter) -> None:
    users = [{"name": name} for name in writer.subset(_USERS[:2])]
    writer.send("DescribeUserScramCredentials", users=users)
