"""AddPartitionsToTxn and EndTxn that a connection repeats are answered as the plain ones would be."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.testing import FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader
from kohort.wire.templates import DecodedOnce, Memory, PreparedResponse, TemplateCache, TemplateMatch, route_repeats
from tests.transaction.bench import ID, T0, T1, Bench, Topic

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN


class Connection:
    """
    A connection that reads requests as the server does.

    Attributes:
        repeats: requests that were recognised.
        prepared: answers that were encoded before.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.cache = TemplateCache(Memory())
        self.repeats = 0
        self.prepared = 0

    def begin(self, api: ApiKey, version: int, request: Any) -> list[Any]:
        """Ask, and return the list into which the answer falls."""
        handler = DecodedOnce(self.bench.service.handlers()[api])
        read, _ = route_repeats(api, version, handler, response_encoder(api, version))
        frame = request_encoder(api, version)(7, "client", request)
        assert read is not None
        found = read(frame, 4 + 8 + 2 + len("client") + (api.request_header_version(version) == 2), self.cache)
        self.repeats += isinstance(found, TemplateMatch)
        answers: list[Any] = []
        response = handler(found, FixedContext(version), answers.append)
        if response is not None:
            answers.append(response)
        self.bench.settle()
        return answers

    def ask(self, api: ApiKey, version: int, request: Any) -> Any:
        answers = self.begin(api, version, request)
        if not answers:
            self.bench.advance(200)
        (response,) = answers
        self.prepared += isinstance(response, PreparedResponse)
        handler = DecodedOnce(self.bench.service.handlers()[api])
        encode = response_encoder(api, version)
        frame = route_repeats(api, version, handler, encode)[1](9, response)
        answer = response_reader(api, version)(frame[4:], read_response_header(frame[4:], api, version)[1])
        assert frame == encode(9, answer)
        return answer


def added(*partitions: TopicPartition, epoch: int = 0) -> m.AddPartitionsToTxnRequest:
    topics = [m.AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions]
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=1000,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )


def ended(committed: bool = True) -> m.EndTxnRequest:
    return m.EndTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, committed=committed)


def begun() -> tuple[Bench, Connection]:
    bench = Bench()
    bench.init()
    return bench, Connection(bench)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("add_version", "end_version"), [(0, 0), (2, 2), (3, 4)])
def test_repeated_transactions_are_answered_and_written_as_the_first_one(
    add_version: int, end_version: int, committed: bool
) -> None:
    bench, connection = begun()
    answers = [
        (connection.ask(ADD, add_version, added(T0, T1)), connection.ask(END, end_version, ended(committed)))
        for _ in range(5)
    ]
    assert answers[1:] == answers[:-1]
    assert [
        result.results_by_partition[0].partition_error_code for result in answers[4][0].results_by_topic_v3_and_below
    ] == [0, 0]
    assert answers[4][1].error_code == 0
    # The first one is a candidate, the second one becomes the template.
    assert (connection.repeats, connection.prepared) == (6, 6)
    outcome = "Commit" if committed else "Abort"
    transaction = ["Ongoing", f"Prepare{outcome}", f"Complete{outcome}"]
    assert [state for state, _, _ in bench.states()] == ["Empty", *transaction * 5]
    assert [topic_partition for topic_partition, _ in bench.markers.sent] == [T0, T1] * 5


def test_a_repeated_request_waits_for_the_end_of_the_last_transaction() -> None:
    bench, connection = begun()
    bench.markers.code = None
    for number in range(4):
        answers = connection.begin(ADD, 3, added(T0))
        assert bool(answers) is (number == 0)
        bench.markers.answer()
        bench.settle()
        assert isinstance(answers[0], PreparedResponse) is (number >= 2)
        connection.ask(END, 4, ended())


def other_count(bench: Bench, count: int) -> None:
    bench.image["t"] = Topic("t", count)


def failing(bench: Bench) -> None:
    bench.logs[0].fail_next_append = UnavailableError("no disk")


CHANGES: dict[str, Callable[[Bench], Any]] = {
    "nothing": lambda bench: None,
    "the topic is deleted": lambda bench: bench.image.pop("t"),
    "the topic has more partitions": lambda bench: other_count(bench, 8),
    "the topic was created again, with fewer partitions": lambda bench: other_count(bench, 1),
    "the producer is fenced": lambda bench: bench.init(),
    "the append fails": failing,
    "a restart": lambda bench: bench.restart(),
    "the partition has no leader": lambda bench: bench.runtime.unload(0, None),
    "the service stops": lambda bench: setattr(bench.service, "is_active", False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", ["the beginning", "the end"])
def test_after_a_change_it_is_answered_as_a_request_that_was_never_repeated(change: str, at: str) -> None:
    answers: dict[bool, list[Any]] = {False: [], True: []}
    for is_repeated, found in answers.items():
        bench, connection = begun()

        def ask(api: ApiKey, version: int, request: Any) -> Any:
            if not is_repeated:  # noqa: B023 -- called in this round
                connection.cache = TemplateCache(Memory())  # noqa: B023
            return connection.ask(api, version, request)  # noqa: B023

        for number in range(6):
            if number == 4 and at == "the beginning":
                CHANGES[change](bench)
            found.append(ask(ADD, 3, added(T0, T1)))
            if number == 4 and at == "the end":
                CHANGES[change](bench)
            found.append(ask(END, 4, ended()))
        found.append(bench.states())
    assert answers[True] == answers[False]


@pytest.mark.parametrize("wrong", [added(T0, epoch=3), added(TopicPartition("t", 9)), added(TopicPartition("x", 0))])
def test_what_is_refused_is_refused_each_time(wrong: m.AddPartitionsToTxnRequest) -> None:
    _, connection = begun()
    answers = [connection.ask(ADD, 3, wrong) for _ in range(5)]
    assert answers[1:] == answers[:-1]
    assert answers[0].results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code != 0
    assert (connection.repeats, connection.prepared) == (3, 0)


def test_an_end_without_a_transaction_is_refused_each_time() -> None:
    _, connection = begun()
    answers = [connection.ask(END, 4, ended()) for _ in range(5)]
    assert answers[1:] == answers[:-1]
    assert answers[0].error_code != 0
    assert (connection.repeats, connection.prepared) == (3, 0)
