"""Numbers on the command line: beyond their range, with thousands of digits, of other scripts. The answer is a sentence."""

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.features import parse_features
from kohort.cli.app import app
from kohort.cli.groups.reset_targets import duration_ms
from kohort.cli.main import EXIT_ERROR, run
from kohort.model.errors import ConfigError
from kohort.server.listeners.addresses import listener_addresses
from kohort.server.settings import parse_host_port
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.client.scripted_broker import ScriptedBroker, versions

TIMEOUT_S = 120
DIGITS = "9" * 5_000
ARABIC = "\u0665"
"""The digit five."""

LINES = [
    *(f"serve --memory --port {number}" for number in (DIGITS, ARABIC, "-1", "65536", "nan")),
    *(f"serve --memory --brokers {number}" for number in (DIGITS, ARABIC, "0", "1e1")),
    *(f"serve --memory --kafka {number}" for number in (DIGITS, ARABIC, "4.3", "4")),
    *(f"top --metrics a:{number}" for number in (DIGITS, ARABIC, "0")),
    *(f"top --interval {number} --once" for number in ("nan", "inf", "1e300")),
    *(f"topics list --timeout {number}" for number in ("nan", "inf", "1e300", "-1", DIGITS)),
    *(f"topics list -b a:{number}" for number in (DIGITS, ARABIC)),
    *(f"pipeline lag /nowhere --as-of {number}" for number in (DIGITS, ARABIC, "9223372036854775808")),
    f"groups reset-offsets g --topic t:{DIGITS} --to-earliest",
    "groups reset-offsets g --topic t:2147483648 --to-earliest",
    f"groups reset-offsets g --topic t --to-offset {DIGITS}",
    f"log dump /nowhere --offset {DIGITS}",
]
SENT = [  # what the command line takes and no request has room for
    "topics create t --partitions 2147483648",
    "topics create t --replication-factor 32768",
    "topics create t --partitions -2147483649",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.replace(DIGITS, "DIGITS"))
def test_a_number_out_of_range_is_refused_in_a_sentence(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == EXIT_ERROR
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err


@pytest.mark.parametrize(
    "assignment",
    [f"node.id={DIGITS}", f"max.connections.per.ip.overrides=10.0.0.1:{DIGITS}"],
    ids=lambda assignment: assignment.replace(DIGITS, "DIGITS"),
)
def test_a_configuration_out_of_range_is_refused_in_a_sentence(assignment: str) -> None:
    words = (sys.executable, "-m", "kohort.cli.main", "serve", "--memory", "--port", "0", "--set", assignment)
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout) == (EXIT_ERROR, "")
    assert "Traceback" not in done.stderr
    assert assignment.partition("=")[0] in done.stderr


@pytest.mark.parametrize("number", [DIGITS, ARABIC, "65536"])
def test_ports_and_levels(number: str) -> None:
    with pytest.raises(ConfigError, match="--advertised must be HOST:PORT"):
        parse_host_port(f"a:{number}", "--advertised")
    with pytest.raises(ConfigError, match="NAME=LEVEL"):
        parse_features([f"transaction.version={number}"])
    config = BrokerConfig({"listeners": f"PLAINTEXT://:{number}"})
    with pytest.raises(ConfigError, match="NAME://HOST:PORT"):
        listener_addresses(config, "127.0.0.1", 0, None, 1)


@pytest.mark.parametrize("line", SENT)
def test_a_number_that_no_request_can_have(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {
        ApiKey.API_VERSIONS: versions(METADATA=(12, 12), CREATE_TOPICS=(7, 7)),
        ApiKey.METADATA: messages.MetadataResponse(),
    }
    with ScriptedBroker(lambda api, version, request: answers.get(api)) as broker:
        assert run([*line.split(), "-b", broker.address]) == EXIT_ERROR
    assert capsys.readouterr().err.startswith("kohort: a number is too large for CreateTopics")


def test_every_fraction_has_bounds() -> None:
    """NaN and infinity are outside of them."""
    found = {
        f"{path} {parameter.name}": (parameter.min, parameter.max)
        for path, parameter in parameters(typer.main.get_command(app))
        if float in types_of(parameter)
    }
    assert "kohort topics create timeout_s" in found
    for least, most in found.values():
        assert least is not None
        assert most is not None
        assert math.isfinite(least + most)


def parameters(command: Any, path: str = "kohort") -> Iterator[tuple[str, Any]]:
    """The parameters of a command and of those below it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from parameters(below, f"{path} {name}")
    for parameter in command.params:
        yield path, parameter


def types_of(parameter: Any) -> tuple[Any, ...]:
    annotation = parameter.type_descriptor.annotation if hasattr(parameter, "type_descriptor") else None
    return (annotation, *get_args(annotation))


@pytest.mark.parametrize(
    "text", [f"P{DIGITS}D", f"PT{DIGITS}S", "PT0.5.5S", f"PT1.{DIGITS}S", f"P{ARABIC}D", "P1000000000001D"]
)
def test_durations_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="duration"):
        duration_ms(text)
