"""The entry point: exit codes, sentences, and how little is imported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kohort import __version__
from kohort.cli.main import EXIT_ERROR, EXIT_INTERRUPTED, run
from kohort.compiled import is_compiled
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.client.scripted_broker import ScriptedBroker, versions

COMMAND = (sys.executable, "-m", "kohort.cli.main")
TIMEOUT_S = 120


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"kohort {__version__} ({'compiled' if is_compiled() else 'plain'})\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["config"],
        ["topics"],
        ["topics", "list"],
        ["topics", "describe"],
        ["topics", "create"],
        ["topics", "delete"],
        ["groups"],
        ["groups", "list"],
        ["groups", "describe"],
        ["groups", "reset-offsets"],
        ["groups", "export"],
        ["groups", "import"],
        ["groups", "delete-offsets"],
        ["groups", "delete"],
        ["transactions"],
        ["transactions", "list"],
        ["transactions", "describe"],
        ["transactions", "describe-producers"],
        ["transactions", "find-hanging"],
        ["transactions", "abort"],
        ["transactions", "force-terminate"],
        ["transactions", "hang"],
        ["offsets"],
        ["fault"],
        ["fault", "add"],
        ["fault", "list"],
        ["fault", "wait"],
        ["fault", "remove"],
        ["event"],
        ["hold"],
        ["hold", "add"],
        ["hold", "list"],
        ["hold", "wait"],
        ["hold", "release"],
        ["wait"],
        ["wait", "group"],
        ["wait", "transaction"],
        ["wait", "topic"],
        ["requests"],
        ["clock"],
        ["clock", "advance"],
        ["clock", "run-next"],
        ["clock", "timers"],
        ["snapshot"],
        ["snapshot", "take"],
        ["snapshot", "list"],
        ["snapshot", "restore"],
        ["snapshot", "remove"],
        ["reset"],
        ["pipeline"],
        ["serve"],
    ],
    ids=" ".join,
)
def test_every_command_has_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    assert " ".join(["usage: kohort", *words]) in capsys.readouterr().out.replace("Usage", "usage")


@pytest.mark.parametrize(
    "words",
    [
        ["bogus"],
        ["topics", "bogus"],
        ["topics", "list", "--bogus"],
        ["topics", "describe"],
        ["offsets"],
        ["serve", "--bogus"],
        ["serve", "--memory", "--data-dir", "there"],
        ["groups", "describe"],
        ["groups", "describe", "one", "--all"],
        ["groups", "reset-offsets", "--topic", "t", "--to-latest"],
        ["groups", "reset-offsets", "g", "--all-groups", "--topic", "t", "--to-latest"],
        ["groups", "reset-offsets", "g", "--to-latest"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--all-topics", "--to-latest"],
        ["groups", "reset-offsets", "g", "--topic", "t"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--to-offset", "0"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--by-duration", "soon"],
        ["groups", "reset-offsets", "g", "--topic", "t", "--from-file", "absent"],
        ["groups", "reset-offsets", "g", "--from-file", "absent"],
        ["groups", "export"],
        ["groups", "export", "g", "--csv", "--json"],
        ["groups", "import", "absent"],
        ["groups", "delete-offsets", "g"],
        ["groups", "delete"],
        ["transactions", "list", "--state", "bogus"],
        ["transactions", "list", "--duration-filter", "-1"],
        ["transactions", "describe"],
        ["transactions", "describe", "one", "--all"],
        ["transactions", "describe-producers"],
        ["transactions", "find-hanging", "--partition", "0"],
        ["transactions", "find-hanging", "--max-transaction-timeout", "-1"],
        ["transactions", "abort", "--topic", "t"],
        ["transactions", "abort", "--topic", "t", "--partition", "0"],
        ["transactions", "abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
        ["transactions", "force-terminate"],
        ["transactions", "hang", "--topic", "t"],
        ["topics", "list", "--bootstrap", "no port:"],
        ["topics", "list", "--timeout", "soon"],
        ["topics", "create", "t", "--config", "no-equals-sign"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_said_on_stderr_with_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == EXIT_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].lower().startswith(("error: ", "kohort: ", "kohort serve: error: "))
    assert "Traceback" not in printed.err


def test_the_environment_names_the_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KOHORT_BOOTSTRAP", "nobody.invalid:1")
    assert run(["topics", "list"]) == EXIT_ERROR
    assert "nobody.invalid" in capsys.readouterr().err


def test_an_interrupt_ends_with_130_and_no_traceback() -> None:
    with ScriptedBroker(lambda api, version, request: None) as silent:
        # Whoever runs in the background ignores interrupts and hands that on; what is handled is not handed on.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            (*COMMAND, "topics", "list", "--bootstrap", silent.address), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        signal.signal(signal.SIGINT, before)
        assert silent.was_asked.wait(TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, printed) == (EXIT_INTERRUPTED, (b"", b""))


def test_a_reader_that_went_away_is_not_worth_a_word() -> None:
    # The pipe is closed at its reading end before the command writes.
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen((*COMMAND, "--help"), stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert stderr == b""
    assert process.returncode != 0


@pytest.mark.parametrize("words", [["--help"], ["pipeline", "dashboard"], ["pipeline", "schema", "lag", "--json"]])
def test_a_full_disk_of_standard_output_is_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run((*COMMAND, *words), stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (
        EXIT_ERROR,
        b"kohort: the output cannot be written: No space left on device\n",
    )


def test_help_imports_neither_rich_nor_what_only_a_broker_or_spark_needs() -> None:
    script = "import sys; from kohort.cli.main import run; run(['--help']); print(' '.join(sys.modules))"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    heavy = {"rich", "pyspark", "pandas", "pyarrow", "numpy", "uvloop", "aiokafka", "kio", "kohort.server.node"}
    assert imported & heavy == set()


def test_serve_imports_neither_typer_nor_the_other_commands() -> None:
    script = "import sys; from kohort.cli.main import run; run(['serve', '--help']); print(' '.join(sys.modules))"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert (
        imported
        & {"rich", "typer", "pyspark", "kohort.cli.app", "kohort.client.connection", "kohort.cli.pipeline.commands"}
        == set()
    )


def test_json_needs_no_rich() -> None:
    answers = {ApiKey.API_VERSIONS: versions(METADATA=(0, 13)), ApiKey.METADATA: messages.MetadataResponse()}
    with ScriptedBroker(lambda api, version, request: answers[api]) as broker:
        words = ["topics", "list", "--json", "--bootstrap", broker.address]
        script = f"import sys; from kohort.cli.main import run; run({words}); sys.exit('rich' in sys.modules)"
        done = subprocess.run((sys.executable, "-c", script), capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "kohort", "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: kohort " in done.stderr
