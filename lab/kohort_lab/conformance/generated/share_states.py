"""
Generated scenarios of share group state: initialised, read, written, deleted and summed up, with valid and invalid epochs,
offsets and batches.
"""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

SHARE_KEYS = 2
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR = 15, 14, 16
_NO_TOPIC = "11111111-1111-4111-8111-111111111111"
_TOPICS = ("$orders.id", "$orders.id", "$orders.id", "$jobs.id")
_PARTITIONS = (0, 0, 0, 0, 1, 1)
_WRONG_PARTITIONS = (2, -1)
_EPOCHS = (0, 1, 1, 1, 2, 3)
_OFFSETS = (-1, 0, 0, 3, 5, 8, 12)


def write_share_state_scenario(writer: ScenarioWriter) -> None:
    writer.broker = "share"
    writer.topics = {"orders": 2, "jobs": 1}
    # The first request makes the topic of the coordinator.
    _find(writer)
    again = {"results.0.partitions.0.error_code": [COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR]}
    _initialize(writer, [_topic("$orders.id", _begin(writer, 0, 1))], {"again_while": again})
    _initialize(writer, [_topic("$orders.id", _begin(writer, 1, 1)), _topic("$jobs.id", _begin(writer, 0, 1))])
    for _ in range(writer.random.randint(10, 20)):
        step = writer.pick((_write, _write, _write, _write, _read, _read, _sum, _begin_anew, _delete))
        step(writer)
    _read(writer)
    _sum(writer)


def _find(writer: ScenarioWriter) -> None:
    again = {"coordinators.0.error_code": [COORDINATOR_NOT_AVAILABLE]}
    keywords = {"version": 6, "ignore": ["coordinators.0.key"], "again_while": again}
    writer.send("FindCoordinator", keywords, key_type=SHARE_KEYS, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])


def _initialize(writer: ScenarioWriter, topics: list[dict[str, Any]], keywords: dict[str, Any] | None = None) -> None:
    writer.send("InitializeShareGroupState", keywords, group_id=_group(writer), topics=topics)


def _group(writer: ScenarioWriter) -> str:
    return "" if writer.steps[2:] and writer.chance(0.02) else "@g"


def _topic(topic_id: str, *partitions: dict[str, Any]) -> dict[str, Any]:
    return {"topic_id": topic_id, "partitions": list(partitions)}


def _topics(writer: ScenarioWriter, make: Any) -> list[dict[str, Any]]:
    """One topic or two, perhaps the same, with one share partition or several."""
    if writer.chance(0.02):
        return []
    found = []
    for _ in range(writer.pick((1, 1, 1, 2))):
        topic_id = _NO_TOPIC if writer.chance(0.04) else writer.pick(_TOPICS)
        count = 0 if writer.chance(0.02) else writer.pick((1, 1, 1, 2))
        indexes = writer.random.sample((0, 1), 2) if count == 2 else [writer.pick(_PARTITIONS)] * count
        if indexes and writer.chance(0.06):
            indexes[-1] = writer.pick(_WRONG_PARTITIONS)
        found.append(_topic(topic_id, *(make(writer, index) for index in indexes)))
    return found


def _epoch(writer: ScenarioWriter) -> int:
    return -1 if writer.chance(0.04) else writer.pick(_EPOCHS)


def _begin(writer: ScenarioWriter, index: int, state_epoch: int | None = None) -> dict[str, Any]:
    epoch = _epoch(writer) if state_epoch is None else state_epoch
    return {"partition": index, "state_epoch": epoch, "start_offset": writer.pick(_OFFSETS)}


def _begin_anew(writer: ScenarioWriter) -> None:
    _initialize(writer, _topics(writer, _begin))


def _read(writer: ScenarioWriter) -> None:
    topics = _topics(writer, lambda writer, index: {"partition": index, "leader_epoch": _epoch(writer)})
    writer.send("ReadShareGroupState", group_id=_group(writer), topics=topics)


def _sum(writer: ScenarioWriter) -> None:
    topics = _topics(writer, lambda writer, index: {"partition": index, "leader_epoch": _epoch(writer)})
    writer.send("ReadShareGroupStateSummary", group_id=_group(writer), topics=topics)


def _delete(writer: ScenarioWriter) -> None:
    topics = _topics(writer, lambda _, index: {"partition": index})
    writer.send("DeleteShareGroupState", group_id=_group(writer), topics=topics)


def _write(writer: ScenarioWriter) -> None:
    writer.send("WriteShareGroupState", group_id=_group(writer), topics=_topics(writer, _change))


def _change(writer: ScenarioWriter, index: int) -> dict[str, Any]:
    change = {
        "partition": index,
        "state_epoch": max(_epoch(writer), writer.pick((-1, 1, 2, 3))),
        "leader_epoch": max(_epoch(writer), writer.pick((-1, 1, 2, 3))),
        "start_offset": writer.pick(_OFFSETS),
        "state_batches": [_batch(writer) for _ in range(writer.pick((0, 1, 1, 2, 3, 5)))],
    }
    if writer.version("WriteShareGroupState") >= 1:
        change["delivery_complete_count"] = writer.pick((-1, 0, 1, 4))
    return change


def _batch(writer: ScenarioWriter) -> dict[str, int]:
    first = writer.random.randint(0, 20)
    return {
        "first_offset": first,
        "last_offset": first + writer.random.randint(0, 6),
        "delivery_state": writer.pick((0, 2, 2, 3, 4)),
        "delivery_count": writer.random.randint(1, 4),
    }
