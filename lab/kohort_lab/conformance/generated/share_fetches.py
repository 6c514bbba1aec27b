"""
Generated scenarios of two members of a share group: what they fetch by their limits, and how they acknowledge, in time and
wrongly, with ShareAcknowledge and with the next fetch.

No locks run out. In half of the scenarios a third member holds the first record from the beginning, so that the start offset
stays where it is. In the others no batch of an acknowledgement has more than one record: one that lies across the start offset
is a null pointer in Apache Kafka, if nothing is in flight.
"""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

_MEMBERS = ("m0", "m1")
_KEEPER = "keeper"
_NO_TOPIC = "11111111-1111-4111-8111-111111111111"
_GAP, _ACCEPT, _RELEASE, _REJECT = range(4)
_KINDS = (_ACCEPT, _ACCEPT, _ACCEPT, _RELEASE, _RELEASE, _REJECT, _GAP)
_LAST_EPOCH = -1
_RELEASE_MS = 200
_WRONG_KIND = 9


def write_share_fetch_scenario(writer: ScenarioWriter) -> None:
    _Conversation(writer).write()


class _Conversation:
    def __init__(self, writer: ScenarioWriter) -> None:
        self._writer = writer
        self._produced = 0
        self._epochs = dict.fromkeys((*_MEMBERS, _KEEPER), 0)
        self._has_keeper = writer.chance(0.5)

    def write(self) -> None:
        writer = self._writer
        writer.broker = "share"
        writer.topics = {"orders": 1}
        for _ in range(writer.random.randint(1, 3)):
            self._produce()
        start = {"topic_name": "@orders", "partitions": [{"partition_index": 0, "start_offset": 0}]}
        writer.send("AlterShareGroupOffsets", group_id="@g", topics=[start])
        if self._has_keeper:
            self._send_fetch(_KEEPER, share_acquire_mode=1, max_records=1, max_wait_ms=5_000)
        else:
            self._send_fetch("m0", max_wait_ms=5_000)
        for _ in range(writer.random.randint(6, 14)):
            step = writer.pick((self._fetch, self._fetch, self._acknowledge, self._acknowledge, self._produce))
            step()
        self._fetch()

    def _produce(self) -> None:
        count = self._writer.random.randint(1, 5)
        values = [f"v{self._produced + number}" for number in range(count)]
        self._produced += count
        partition = {"index": 0, "records": {"$batch": {"records": values}}}
        self._writer.send(
            "Produce",
            {"version": 9},
            acks=-1,
            timeout_ms=10_000,
            transactional_id={"$none": True},
            topic_data=[{"name": "@orders", "partition_data": [partition]}],
        )

    def _fetch(self) -> None:
        writer = self._writer
        member = writer.pick(_MEMBERS)
        limits = {
            "max_records": writer.pick((1, 2, 3, 5, 100, 100)),
            "batch_size": writer.pick((1, 2, 4, 100)),
            "share_acquire_mode": writer.pick((0, 0, 1)),
        }
        acknowledged = self._epochs[member] > 0 and writer.chance(0.4)
        self._send_fetch(member, self._batches() if acknowledged else [], **limits)

    def _send_fetch(self, member: str, batches: list[dict[str, Any]] | None = None, **limits: Any) -> None:
        writer = self._writer
        epoch = self._epoch(member)
        partition = {"partition_index": 0, "acknowledgement_batches": batches or []}
        topics = [{"topic_id": "$orders.id", "partitions": [partition]}] if batches or epoch == 0 else []
        fields: dict[str, Any] = {
            "group_id": "@g",
            "member_id": member,
            "share_session_epoch": epoch,
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": topics,
            "forgotten_topics_data": [],
        }
        if writer.version("ShareFetch") >= 2:
            fields |= {"share_acquire_mode": 0, "is_renew_ack": False}
        else:
            limits.pop("share_acquire_mode", None)
        self._send("ShareFetch", **fields | limits)

    def _acknowledge(self) -> None:
        writer = self._writer
        member = writer.pick(_MEMBERS)
        topic_id = _NO_TOPIC if writer.chance(0.03) else "$orders.id"
        partition = {"partition_index": 1 if writer.chance(0.03) else 0, "acknowledgement_batches": self._batches()}
        fields: dict[str, Any] = {
            "group_id": "@g",
            "member_id": member,
            "share_session_epoch": self._epoch(member),
            "topics": [{"topic_id": topic_id, "partitions": [partition]}],
        }
        if writer.version("ShareAcknowledge") >= 2:
            fields["is_renew_ack"] = False
        self._send("ShareAcknowledge", **fields)

    def _send(self, api_name: str, **fields: Any) -> None:
        """Send a request. The records of a session that it ends are released after the answer."""
        self._writer.send(api_name, **fields)
        if fields["share_session_epoch"] == _LAST_EPOCH:
            self._writer.pause(_RELEASE_MS)

    def _epoch(self, member: str) -> int:
        """The epoch of the next request of a session; now and then a wrong one, or the one that ends it."""
        writer = self._writer
        epoch = self._epochs[member]
        if epoch and writer.chance(0.04):
            return epoch + writer.pick((1, 2))
        if epoch and member != _KEEPER and writer.chance(0.03):
            self._epochs[member] = 0
            return _LAST_EPOCH
        self._epochs[member] = epoch + 1
        return epoch

    def _batches(self) -> list[dict[str, Any]]:
        """Some offsets in order, from the produced ones and a bit behind them."""
        writer = self._writer
        found = []
        offset = writer.random.randint(1, self._produced)
        for _ in range(writer.pick((1, 1, 2, 3))):
            count = writer.random.randint(1, 4) if self._has_keeper else 1
            kinds = [writer.pick(_KINDS) for _ in range(count if writer.chance(0.5) else 1)]
            if writer.chance(0.02):
                kinds[-1] = _WRONG_KIND
            found.append({"first_offset": offset, "last_offset": offset + count - 1, "acknowledge_types": kinds})
            offset += count + writer.pick((0, 0, 1, 3))
        return found
