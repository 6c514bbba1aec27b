"""`kohort-lab conformance`, and the command line `kohort-lab`."""

import json
import re
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.testing.kafka import RELEASE
from kohort.testing.served import ServedKohort
from kohort_lab.conformance import library
from kohort_lab.conformance.__main__ import main
from kohort_lab.main import TOOLS, run


def test_the_settings_that_a_broker_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conformance", "--settings"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert dict(line.split("=", 1) for line in printed) == library.SETTINGS


def test_the_list_of_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conformance", "--list", "--scenario", "group_of_two/", "--skip", "group_of_two/2"]) == 0
    printed = capsys.readouterr().out
    assert "group_of_two/3" in printed
    assert "group_of_two/2" not in printed


def test_scenarios_of_a_broker_with_settings_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conformance", "--list", "--broker", "tv1", "--scenario", "txn_commit"]) == 0
    printed = capsys.readouterr().out
    assert "txn_commit/tv1/3" in printed
    assert "txn_commit/3" not in printed
    assert run(["conformance", "--settings", "--broker", "tv1"]) == 0
    assert "transaction.version=1" in capsys.readouterr().out
    assert run(["conformance", "--settings", "--broker", "fast"]) == 2
    assert "no scenarios for a broker called fast" in capsys.readouterr().err


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conformance", "127.0.0.1:1", "--scenario", "group_of_two/"]) == 2
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


def test_a_report_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "card.html"
    with ServedKohort(tmp_path / "broker", library.SETTINGS) as broker:
        ask = [
            "conformance",
            broker.bootstrap,
            "--scenario",
            "heartbeat_refused",
            "--html",
            str(page),
            "--json",
        ]
        assert run(ask) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert {row["version"] for row in rows if row["api"] == "Heartbeat"} == {0, 1, 2, 3, 4}
    assert all(row["same"] == row["answers"] for row in rows)
    assert "0 differences" in printed.err
    assert broker.bootstrap in page.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--scenario zzzz", "no scenario begins with 'zzzz'; see: kohort-lab conformance --list"),
        ("--skip classic/jion", "no scenario begins with 'classic/jion'"),
        ("--html nowhere/card.html", "cannot be written to nowhere/card.html: the directory does not exist"),
        ("--broker zzzz", "no scenarios for a broker called zzzz; there are for default, "),
        ("--recording missing", "cannot be read: .*No such file"),
        ("--recording .", "cannot be read: .*Is a directory"),
        ("--recording text", "cannot be read: Not a gzip"),
    ],
)
def test_what_the_command_cannot_work_with(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("this is no recording\n")
    assert run(["conformance", *words.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.match(f"kohort-lab: .*{sentence}", printed.err.splitlines()[-1])


@pytest.mark.parametrize("tool", TOOLS)
def test_the_other_tools(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([tool, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m {TOOLS[tool][0]} ")
    assert run([tool, "--bogus"]) == 2


@pytest.mark.parametrize("command", ["live", "replay", "record"])
def test_no_scenario_of_that_name(command: str) -> None:
    """Nothing is started, and no recording is written."""
    with pytest.raises(ConfigError, match="no scenario begins with nothing_like_this"):
        main([command, "nothing_like_this"])


@pytest.mark.parametrize("release", ["4.4", "next", "../4.4.0"])
def test_a_release_that_is_none(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["record", "--kafka", release])
    assert refused.value.code == 2
    assert f"{release!r} is no release such as {RELEASE}" in capsys.readouterr().err


def test_a_release_without_a_recording() -> None:
    with pytest.raises(ConfigError, match=r"kafka-9\.9\.9\.json\.gz cannot be read"):
        main(["replay", "--kafka", "9.9.9", "api_versions/"])


def test_a_command_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--bogus"])
    assert refused.value.code == 2
    assert "unrecognized arguments: --bogus" in capsys.readouterr().err
