"""Dead letters beside the recorded stories: loops, failures, many letters, a load with letters that were not written."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.wire.batches import iter_batches, read_records
from tests.broker.harness import Harness
from tests.broker.shares.members import Member, configure, sharing, state_of

ACCEPT, REJECT = 1, 3


def letters(harness: Harness, topic: str) -> list[tuple[Any, ...]]:
    """Key, value, offset of the source and reason of each dead letter."""
    found = harness.broker.partitions.find(topic, 0)
    assert found is not None
    data = found.log.read(0, bytes_max=1 << 24)
    letters = []
    for position, header in iter_batches(data):
        for record in read_records(data[position : position + header.size_bytes]):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            letters.append(
                (record.key, record.value, int(headers["__dlq.errors.offset"]), headers["__dlq.errors.message"])
            )
    return letters


@pytest.fixture
def harness() -> Harness:
    harness = sharing(errors_deadletterqueue_auto_create_topics_enable="true")
    configure(harness, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name="dlq.t")
    return harness


def test_a_group_does_not_write_letters_to_the_topic_that_it_reads(harness: Harness) -> None:
    topic_id = harness.create("dlq.t", errors_deadletterqueue_group_enable="true")
    harness.write("dlq.t", b"seed")
    member = Member(harness, "m", topic_id)
    assert member.fetch() == [(0, 0, 1)]
    assert member.acknowledge(0, 0, REJECT) == 0
    harness.node.advance(1000)
    assert member.fetch() == []
    assert state_of(harness, topic_id) == (1, 0)


def test_many_letters_are_written_in_several_batches(harness: Harness) -> None:
    configure(harness, share_partition_max_record_locks="2000")
    topic_id = harness.create("t")
    harness.write("t", *[b"%d" % number for number in range(1200)])
    member = Member(harness, "m", topic_id)
    assert member.fetch() == [(0, 1199, 1)]
    assert member.acknowledge(0, 1199, REJECT) == 0
    harness.node.advance(1000)
    assert [offset for _, _, offset, _ in letters(harness, "dlq.t")] == list(range(1200))
    assert state_of(harness, topic_id) == (1200, 0)
    assert harness.broker.dead_letters.written == {"g": 1200}


def test_copies_are_those_of_the_records_and_of_no_others(harness: Harness) -> None:
    configure(harness, errors_deadletterqueue_copy_record_enable="true")
    topic_id = harness.create("t")
    for number in range(4):
        harness.write("t", b"a%d" % number, b"b%d" % number)
    member = Member(harness, "m", topic_id)
    assert member.fetch() == [(0, 7, 1)]
    assert member.acknowledge(0, 7, ACCEPT, REJECT, ACCEPT, ACCEPT, REJECT, REJECT, ACCEPT, ACCEPT) == 0
    harness.node.advance(1000)
    reason = "Offset rejected by client."
    assert letters(harness, "dlq.t") == [
        (b"k", b"b0", 1, reason),
        (b"k", b"a2", 4, reason),
        (b"k", b"b2", 5, reason),
    ]


def test_a_letter_that_the_topic_refuses_is_lost_and_its_record_archived(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create("dlq.t", errors_deadletterqueue_group_enable="true", max_message_bytes="10")
    topic_id = harness.create("t")
    harness.write("t", b"x")
    member = Member(harness, "m", topic_id)
    member.fetch()
    assert member.acknowledge(0, 0, REJECT) == 0
    harness.node.advance(1000)
    assert state_of(harness, topic_id) == (1, 0)
    assert harness.broker.dead_letters.failed == {"g": 1}
    assert "MESSAGE_TOO_LARGE" in caplog.text


def test_neighbours_that_are_rejected_one_after_the_other_are_both_archived(harness: Harness) -> None:
    topic_id = harness.create("t")
    harness.create("dlq.t", errors_deadletterqueue_group_enable="true")
    harness.write("t", b"a", b"b", b"c")
    member = Member(harness, "m", topic_id)
    member.fetch()
    answers = [member.begin_acknowledging(offset, offset, REJECT) for offset in (1, 0, 2)]
    harness.node.advance(1000)
    assert [answer[0].error_code for answer in answers] == [0, 0, 0]
    assert sorted(offset for _, _, offset, _ in letters(harness, "dlq.t")) == [0, 1, 2]
    assert state_of(harness, topic_id) == (3, 0)
