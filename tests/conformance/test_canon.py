"""Identities get names, times get a tolerance, hash tables get an order; everything else stays as it is."""

import time
from typing import Any
from uuid import UUID, uuid4

from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.conformance.canon import Names, canonical_records, canonical_response, plain

PREFIX = "kc-abcd-00007-"


def joined(*ids: str, leader: str) -> Any:
    members = [m.JoinGroupResponseMember(member_id=each, metadata=b"x") for each in ids]
    return m.JoinGroupResponse(generation_id=1, leader=leader, member_id=ids[0], members=members)


def canonical_join(response: Any, names: Names) -> dict[str, Any]:
    return canonical_response(ApiKey.JOIN_GROUP, 5, response, names)


def test_two_runs_with_other_ids_look_alike() -> None:
    first, second = (tuple(f"kc-{name}-{uuid4()}" for name in "ab") for _ in range(2))
    assert canonical_join(joined(*first, leader=first[0]), Names(PREFIX)) == canonical_join(
        joined(*second, leader=second[0]), Names("kc-ffff-00007-")
    )


def test_another_leader_is_seen() -> None:
    a, b = f"kc-a-{uuid4()}", f"kc-b-{uuid4()}"
    assert canonical_join(joined(a, b, leader=a), Names(PREFIX)) != canonical_join(
        joined(a, b, leader=b), Names(PREFIX)
    )


def test_an_identity_keeps_its_name_through_the_scenario() -> None:
    names = Names(PREFIX)
    a, b = f"kc-a-{uuid4()}", f"kc-b-{uuid4()}"
    canonical_join(joined(a, leader=a), names)
    assert canonical_join(joined(b, a, leader=a), names)["leader"] == "kc-a-<uuid 1>"


def test_lists_of_hash_tables_are_sorted_whatever_the_ids_are() -> None:
    names = Names(PREFIX)
    a, b = f"kc-a-{UUID(int=9)}", f"kc-b-{UUID(int=1)}"
    members = canonical_join(joined(b, a, leader=a), names)["members"]
    assert [member["member_id"][:4] for member in members] == ["kc-a", "kc-b"]


def test_only_the_fields_of_the_version() -> None:
    answer = canonical_response(ApiKey.JOIN_GROUP, 0, joined("m", leader="m"), Names(PREFIX))
    assert "throttle_time_ms" not in answer
    assert list(answer["members"][0]) == ["member_id", "metadata"]


def test_names_of_the_scenario_lose_their_prefix() -> None:
    names = Names(PREFIX)
    assert plain(f"Topic '{PREFIX}t' already exists.", names) == "Topic '@t' already exists."
    assert plain(b"\x00\x05" + PREFIX.encode() + b"t", names) == "00054074"


def test_times_of_the_scenario() -> None:
    now_ms = time.time_ns() // 1_000_000
    names = Names(PREFIX)
    assert plain(now_ms, names) == "<now>"
    assert plain(now_ms - 60_000, names) == now_ms - 60_000
    assert plain(1_700_000_000_000, names) == 1_700_000_000_000
    assert plain(42, names) == 42
    assert plain(True, names) is True


def test_topic_ids_in_texts() -> None:
    names = Names(PREFIX)
    topic_id = UUID("00112233-4455-6677-8899-aabbccddeeff")
    names.name("topic", topic_id)
    assert names.text("no topic ABEiM0RVZneImaq7zN3u_w here") == "no topic <topic 1> here"
    assert names.text("a name of 22 characters") == "a name of 22 characters"


def test_other_scenarios_are_left_out() -> None:
    groups = [
        m.ListGroupsResponseListedGroup(group_id=name) for name in (PREFIX + "g", "kc-abcd-00008-g", "", "billing")
    ]
    answer = canonical_response(ApiKey.LIST_GROUPS, 4, m.ListGroupsResponse(groups=groups), Names(PREFIX))
    assert [group["group_id"] for group in answer["groups"]] == ["@g"]


def test_batches_are_taken_apart() -> None:
    content = build_batch([BatchRecord(b"k", b"v", (("h", b"x"),))], timestamp_ms=1_700_000_000_000, base_offset=4)
    found = canonical_records(content + content[:20], Names(PREFIX))
    assert found["cut_bytes"] == 20
    (batch,) = found["batches"]
    assert (batch["base_offset"], batch["producer_id"]) == (4, -1)
    assert batch["records"] == [
        {
            "offset": 4,
            "timestamp": 1_700_000_000_000,
            "key": "text:k",
            "value": "text:v",
            "headers": [["h", "text:x"]],
        }
    ]


def test_bytes_that_are_no_batch() -> None:
    assert "undecodable" in canonical_records(bytes(80), Names(PREFIX))


def test_a_marker_has_the_epoch_of_its_coordinator_by_name() -> None:
    names = Names(PREFIX)
    marker = BatchRecord(bytes.fromhex("00000001"), bytes.fromhex("000000000007"))
    content = build_batch([marker], timestamp_ms=1_700_000_000_000, producer_id=5, producer_epoch=1, control=True)
    ((batch,),) = [canonical_records(content, names)["batches"]]
    assert batch["records"] == [
        {
            "offset": 0,
            "timestamp": 1_700_000_000_000,
            "key": "00000001",
            "value_version": 0,
            "coordinator_epoch": "<coordinator epoch 1>",
        }
    ]
    assert names.name("coordinator epoch", 7) == "<coordinator epoch 1>"


def test_the_partition_of_a_group_in_a_transaction_does_not_count() -> None:
    topics = [
        m.DescribeTransactionsResponseTopicData(topic=PREFIX + "t", partitions=[1, 0]),
        m.DescribeTransactionsResponseTopicData(topic="__consumer_offsets", partitions=[3]),
    ]
    state = m.DescribeTransactionsResponseTransactionState(transactional_id=PREFIX + "tx", topics=topics)
    response = m.DescribeTransactionsResponse(transaction_states=[state])
    answer = canonical_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, response, Names(PREFIX))
    assert answer["transaction_states"][0]["topics"] == [
        {"topic": "__consumer_offsets", "partitions": "<any>"},
        {"topic": "@t", "partitions": [0, 1]},
    ]
