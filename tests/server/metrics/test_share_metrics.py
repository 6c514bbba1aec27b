"""Metrics of share partitions, sessions and dead letters follow what members do."""

from kohort.server.metrics.share_families import share_families
from tests.broker.harness import Harness
from tests.broker.shares.members import Member, configure, sharing


def shown(harness: Harness) -> dict[tuple[str, str], float]:
    """Values by the name of the metric and the labels."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in share_families(harness.broker)
        for sample in family.samples
    }


def test_numbers_follow_the_members() -> None:
    harness = sharing(errors_deadletterqueue_auto_create_topics_enable="true")
    configure(harness, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name="dlq.t")
    before = shown(harness)
    assert before["kafka_server_sharesessioncache_sharesessionscount", ""] == 0
    assert not [name for name, _ in before if "sharepartitionmetrics" in name or "deadletter" in name]

    loads = "kafka_server_sharegroupmetrics_partitionloadtimems"
    assert before[f"{loads}_count", ""] == 0
    topic_id = harness.create("t")
    harness.write("t", b"a", b"b", b"c", b"d", b"e")
    harness.write("t", b"f")
    member = Member(harness, "m", topic_id)
    member.fetch(batch_size=1)
    member.acknowledge(0, 3, 1, 2, 3, 4)
    harness.node.advance(1000)
    after = shown(harness)
    assert after["kafka_server_sharesessioncache_sharesessionscount", ""] == 1
    assert after["kafka_server_sharesessioncache_sharepartitionscount", ""] == 1
    counted = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert [after[counted, kind] for kind in ("Accept", "Release", "Reject", "Renew")] == [1, 1, 1, 1]
    assert after[f"{loads}_count", ""] == 1
    where = "g,t,0"
    prefix = "kafka_server_sharepartitionmetrics_"
    assert after[f"{prefix}inflightmessagecount", where] == after["kohort_share_records_in_flight", where] == 5
    assert after[f"{prefix}inflightbatchcount", where] == 2
    assert after[f"{prefix}acquisitionlocktimeout_total", where] == 0
    assert after["kafka_server_sharegroupmetrics_deadletterqueuerecordcount", "g"] == 1
    assert after["kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total", "g"] == 1

    harness.node.advance(31_000)
    assert shown(harness)[f"{prefix}acquisitionlocktimeout_total", where] == 3
    member.disconnect()
    assert not [name for name, _ in shown(harness) if "sharepartitionmetrics" in name]
