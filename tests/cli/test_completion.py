"""Completion in bash, zsh and fish: commands, options, and names from a running broker."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.client.cluster import Client
from kohort.testing.process import KOHORT
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

SECONDS_MAX = 60.0
SHELLS = ("bash", "zsh", "fish")
TOPICS = ("orders", "orders-dead", "payments")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with three topics and a group."""
    with ServedKohort(tmp_path_factory.mktemp("broker")) as broker, Client(broker.bootstrap) as client:
        created = m.CreateTopicsRequestCreatableTopic
        topics = [created(name=name, num_partitions=1, replication_factor=1) for name in TOPICS]
        client.send(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        yield broker.bootstrap


def completed(shell: str, line: str, bootstrap: str = "127.0.0.1:1") -> list[str]:
    """The words that a shell is offered for the end of a line."""
    words = line.split(" ")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KOHORT_")},
        "KOHORT_BOOTSTRAP": bootstrap,
        "_KOHORT_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(KOHORT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    if shell == "zsh":
        return [part for part in done.stdout.replace("_arguments '*: :((", "").split('"') if part.strip(" \n()'")]
    return [text.partition("\t")[0] for text in done.stdout.splitlines() if text]


@pytest.mark.parametrize("shell", SHELLS)
def test_topics_of_the_broker(shell: str, bootstrap: str) -> None:
    assert completed(shell, "kohort topics describe or", bootstrap) == ["orders", "orders-dead"]


# fmt: off
LINES = {  # the end of the line: what is offered, in bash
    "kohort to":                                      ["top", "topics", "tokens"],
    "kohort topics describe pa":                      ["payments"],
    "kohort groups delete-offsets g --topic pay":     ["payments"],
    "kohort serve --metrics":                         ["--metrics-port", "--metrics-token-file"],
    "kohort serve --log-f":                           ["--log-format"],
    "kohort topics describe --bootstrap 127.0.0.1:1 or": [],
    "kohort groups describe x":                       [],
}
# fmt: on


@pytest.mark.parametrize("line", LINES)
def test_the_end_of_a_line(line: str, bootstrap: str) -> None:
    assert completed("bash", line, bootstrap) == LINES[line]


def test_without_a_broker_nothing_is_completed_and_nothing_is_said() -> None:
    assert completed("bash", "kohort topics describe or") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_accepted_by_it(shell: str, tmp_path: Path) -> None:
    environment = {**os.environ, "_KOHORT_COMPLETE": f"source_{shell}"}
    done = subprocess.run(KOHORT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert "_KOHORT_COMPLETE" in done.stdout
    program = shutil.which(shell)
    if program is not None:
        script = tmp_path / "script"
        script.write_text(done.stdout)
        subprocess.run([program, "-n", str(script)], check=True, timeout=SECONDS_MAX)
