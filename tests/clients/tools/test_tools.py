"""Apache Kafka's command line tools print the same about Kohort as about Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.testing.served import ServedKohort
from tests.clients.jvm import Jvm
from tests.clients.secured import secured_kohort
from tests.clients.tools.calls import SUBJECTS
from tests.clients.tools.outputs import NEED_LOGIN, OF_SUBJECTS, SETTINGS, recorded, run
from tests.clients.tools.runner import ToolRunner
from tests.conftest import NIGHTLY

SAMPLE = ("offsets", "elections")
"""Subjects that every run of the tests covers."""


@pytest.fixture(scope="module")
def runner(java: object) -> Iterator[ToolRunner]:
    del java
    with Jvm() as jvm:
        yield ToolRunner(jvm)


@pytest.fixture
def address(subject: str, tmp_path: Path) -> Iterator[str]:
    """A broker of the subject's own: some tools list everything that there is."""
    make = secured_kohort if subject in NEED_LOGIN else ServedKohort
    with make(tmp_path / "broker", SETTINGS | OF_SUBJECTS.get(subject, {})) as served:
        yield served.bootstrap


@pytest.mark.parametrize(
    "subject",
    [pytest.param(subject, marks=() if subject in SAMPLE else NIGHTLY) for subject in SUBJECTS],
)
def test_output_is_as_with_kafka(subject: str, runner: ToolRunner, address: str, tmp_path: Path) -> None:
    calls = SUBJECTS[subject]
    for call, output, expected in zip(calls, run(runner, address, calls, tmp_path), recorded(subject), strict=True):
        assert output == expected, call.words
