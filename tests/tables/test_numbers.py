"""
Numbers at the edges of their types in every configuration: taken and refused as by Apache Kafka 4.2.1, which `record_numbers`
asked; and whatever was taken, the broker serves, does its maintenance, and starts again.
"""

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.configs.definitions import BROKER_KEYS, ConfigKey
from kohort.model.errors import ConfigError, ErrorCode
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.conftest import LONG
from tests.server.requests.test_number_fields import Served
from tests.tables.number_cases import BROKER, TEXTS, Subject, subjects
from tests.tables.record_numbers import RECORDED, code, codes

SUBJECTS = tuple(subjects())
FLUSH_MS = "log.flush.interval.ms"
"""Deliberate: a negative value, from which `flush.ms` of topics would be invalid, is refused."""
MAINTENANCE_MS = 40_000
"""Beyond the initial delay of the tasks of the log, and the usual pause of the cleaner."""


def sender(harness: Harness) -> Any:
    def send(api_key: ApiKey, version: int, request: Any) -> Any:
        return harness.ask(api_key, request, version=version)

    return send


def test_texts_are_taken_and_refused_as_by_kafka() -> None:
    harness = Harness()
    harness.create("t")
    recorded = json.loads(RECORDED.read_text())
    assert set(recorded) == set(map(str, SUBJECTS))
    different = {}
    for subject in SUBJECTS:
        answers = zip(
            subject.texts, codes(subject, sender(harness)), map(int, recorded[str(subject)].split()), strict=True
        )
        found = {text: (ours, theirs) for text, ours, theirs in answers if ours != theirs}
        if subject.key.name == FLUSH_MS:
            assert set(found.values()) == {(int(ErrorCode.INVALID_REQUEST), 0)}
            assert all(text.startswith("-") for text in found)
        elif found:
            different[str(subject)] = found
    assert different == {}


CHANGE = st.sampled_from(SUBJECTS).flatmap(lambda subject: st.tuples(st.just(subject), st.sampled_from(subject.texts)))


@given(st.lists(CHANGE, min_size=1, max_size=8))
@settings(max_examples=1_000 if LONG else 40)
def test_the_broker_serves_and_starts_again_after_any_changes(changes: list[tuple[Subject, str]]) -> None:
    check_changes(changes)


@pytest.mark.parametrize("key", sorted({subject.key.name for subject in SUBJECTS if subject.kind == BROKER}))
def test_every_edge_of_a_broker_configuration_is_survived(key: str) -> None:
    """One after the other; a few changes at random would seldom meet one key's edges."""
    subject = next(each for each in SUBJECTS if (each.kind, each.key.name) == (BROKER, key))
    check_changes([(subject, text) for text in subject.texts])


def is_effective_refusal(subject: Subject, text: str) -> bool:
    """Whether a value refuses every batch, also those of the coordinators: so it is meant, and so it is in Kafka."""
    try:
        return subject.key.name == "message.max.bytes" and int(str(subject.key.parse(text))) < 1_000
    except ConfigError:
        return False


AT_START = [key for key in BROKER_KEYS.values() if key.type in TEXTS and key.has_effect]


@given(st.sampled_from(AT_START).flatmap(lambda key: st.tuples(st.just(key), st.sampled_from(TEXTS[key.type]))))
@settings(max_examples=1_000 if LONG else 60)
def test_a_start_with_any_number_ends_with_a_sentence_or_serves(chosen: tuple[ConfigKey, str]) -> None:
    key, text = chosen
    configs: dict[str, Any] = {key.name.replace(".", "_"): text}
    try:
        served = Served(**configs)
    except ConfigError:
        return
    served.harness.create("a")
    served.harness.node.advance(MAINTENANCE_MS)
    again = Served(served, **configs)
    again.harness.create("b")


class Errors(logging.Handler):
    """The errors that are logged."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def check_changes(changes: list[tuple[Subject, str]]) -> None:
    served = Served()
    served.harness.create("t")
    served.harness.write("t", b"x")
    handler = Errors(logging.ERROR)
    logging.getLogger("kohort").addHandler(handler)
    try:
        for number, (subject, text) in enumerate(changes):
            if not is_effective_refusal(subject, text):
                code(subject, text, sender(served.harness), is_real=True)
            served.check(f"after-{number}")
        served.harness.node.advance(MAINTENANCE_MS)
        served.check("later")
        again = Served(served)
        again.check("again")
    finally:
        logging.getLogger("kohort").removeHandler(handler)
    assert handler.messages == []
    dynamic = served.harness.broker.config.dynamic, served.harness.broker.config.dynamic_defaults
    assert dynamic == (again.harness.broker.config.dynamic, again.harness.broker.config.dynamic_defaults)
    for name in BROKER_KEYS:
        assert again.harness.broker.config.text(name) == served.harness.broker.config.text(name)
