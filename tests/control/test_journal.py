"""The journal over HTTP: what requests came, how they were answered, and waits for them."""

import asyncio

import msgspec

from kohort.control.requests.answers import values_of
from kohort.control.requests.filters import Call, Filter
from kohort.control.requests.journal import Journal
from kohort.model.limits import JOURNAL_BYTES_MAX, JOURNAL_ENTRIES_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.control.controlled import Stage, play
from tests.control.test_faults import committed
from tests.server.clients import commit, with_topic


def test_requests_are_found_by_what_they_name() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        await stage.control.take("PUT", "/journal", {"is_on": True})
        since = (await stage.control.take("GET", "/requests?limit=0"))["next"]
        fault = await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR")
        await committed(client, 5)
        await committed(client, 6)
        path = f"/requests?api=OffsetCommit,Produce&group=g&topic=t&partition=0&client_id=test&since={since}"
        found = await stage.control.take("GET", path)
        first, second = found["requests"]
        assert found["count"] == 2
        assert (first["errors"], first["fault"], first["outcome"]) == (["NOT_COORDINATOR"], fault, "answered")
        assert "errors" not in second
        assert second["request"]["topics"][0]["partitions"][0]["committed_offset"] == 6
        assert second["response"]["topics"][0]["partitions"][0] == {"partition_index": 0, "error_code": 0}
        for other in ("topic=u", "partition=1", "group=h", "api=Produce", "client_id=x", "broker=2"):
            assert (await stage.control.take("GET", f"/requests?since={since}&limit=0&{other}"))["count"] == 0
        assert (await stage.control.take("GET", f"{path}&limit=1"))["requests"] == [second]
        await stage.control.ask("DELETE", "/requests")
        assert (await stage.control.take("GET", "/requests"))["count"] == 0

    play(story)


def test_a_wait_ends_with_the_request() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        off = await stage.control.ask("GET", "/requests?api=OffsetCommit&wait=1&timeout=0")
        assert (off.status, off.body["detail"]) == (422, "the journal is off: PUT /journal with is_on true")
        await stage.control.take("PUT", "/journal", {"is_on": True})
        waits = asyncio.ensure_future(stage.control.take("GET", "/requests?api=OffsetCommit&wait=1&timeout=5"))
        await committed(client, 5)
        assert (await waits)["count"] == 1
        late = await stage.control.ask("GET", "/requests?api=OffsetCommit&wait=2&timeout=0.01")
        assert (late.status, late.body["state"][-1]["api"]) == (409, "OffsetCommit")

    play(story)


def call(request: object) -> Call:
    return Call(ApiKey.OFFSET_COMMIT, 9, "c", "127.0.0.1:1", "PLAINTEXT", 1, "User:ANONYMOUS", request, {})


def test_old_entries_make_room() -> None:
    journal = Journal(lambda _topic_id: None)
    for number in range(JOURNAL_ENTRIES_MAX + 5):
        kept = journal.begin(call(commit(number)), number)
        journal.end(kept, None, m.OffsetCommitResponse())
    found = list(journal.matching(Filter()))
    assert (len(found), found[0].seq, journal.dropped) == (JOURNAL_ENTRIES_MAX, 6, 5)


def test_the_bytes_of_the_journal_are_bounded() -> None:
    journal = Journal(lambda _topic_id: None)
    partitions = [m.OffsetCommitRequestPartition(partition_index=0, committed_metadata="x" * 30_000)] * 900
    large = m.OffsetCommitRequest(group_id="g", topics=[m.OffsetCommitRequestTopic(name="t", partitions=partitions)])
    for number in range(3):
        journal.begin(call(large), number)
    (entry,) = journal.matching(Filter())
    assert entry.seq == 3
    assert JOURNAL_BYTES_MAX // 2 < len(bytes(entry.request)) < JOURNAL_BYTES_MAX


def test_the_bytes_of_answers_count() -> None:
    journal = Journal(lambda _topic_id: None)
    topics = [m.OffsetCommitResponseTopic(name="x" * 30_000, partitions=[])] * 900
    for number in range(3):
        kept = journal.begin(call(commit(number)), number)
        journal.end(kept, None, m.OffsetCommitResponse(topics=topics))
    assert [entry.seq for entry in journal.matching(Filter())] == [3]


def test_an_entry_shows_a_thousand_elements() -> None:
    journal = Journal(lambda _topic_id: None)
    partitions = [m.OffsetCommitRequestPartition(partition_index=each) for each in range(5_000)]
    many = m.OffsetCommitRequest(group_id="g", topics=[m.OffsetCommitRequestTopic(name="t", partitions=partitions)])
    shown = msgspec.json.decode(journal.begin(call(many), 0).entry.request)["topics"][0]["partitions"]
    assert (len(shown), shown[-1]) == (1_000, {"more": 4_001})


def test_secrets_are_left_out() -> None:
    configs = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=name, value="hidden")
        for name in ("ssl.key.password", "delegation.token.secret.key", "listener.name.a.plain.sasl.jaas.config")
    ]
    configs.append(m.IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", value="1"))
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=4, configs=configs)
    upsertion = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(salt=b"s", salted_password=b"p")
    shown = values_of("IncrementalAlterConfigsRequest", 1, m.IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each["value"] for each in shown["resources"][0]["configs"]] == ["...", "...", "...", "1"]
    scram = values_of(
        "AlterUserScramCredentialsRequest", 0, m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    )
    assert (scram["upsertions"][0]["salt"], scram["upsertions"][0]["salted_password"]) == ("...", "...")
