"""`kohort config`: values with their sources, filters, and the same as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.configs.definitions import BROKER_KEYS, GROUP_KEYS
from kohort.cli.main import EXIT_ERROR, run


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlog.roll.ms=5\nssl.key.password=secret\nsuper.users=User:a\nnum.partition=4\n")
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    assert run(["config", *words, "--json"]) == 0
    return {row["key"]: row for row in json.loads(capsys.readouterr().out)}


def test_changed_values_with_their_sources(
    properties: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOHORT_LOG_ROLL_MS", "6")
    rows = shown(capsys, "--changed", "--config", str(properties), "--set", "log.retention.ms=7")
    assert {key: (row["value"], row["source"]) for key, row in rows.items()} == {
        "num.partitions": ("2", str(properties)),
        "log.roll.ms": ("6", "environment"),
        "log.retention.ms": ("7", "command line"),
        "ssl.key.password": ("(hidden)", str(properties)),
        "super.users": ("(hidden)", str(properties)),
        "num.partition": ("(hidden)", str(properties)),
    }
    assert rows["num.partition"]["meaning"] == "Not known to Kohort; similar is num.partitions."
    assert rows["log.roll.ms"] | {"value": "", "source": ""} == {
        "key": "log.roll.ms",
        "value": "",
        "source": "",
        "change": "cluster-wide",
        "effect": True,
        "meaning": "Age at which a new segment begins.",
        "type": "long",
        "default": None,
        "values": None,
        "importance": "high",
    }


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(shown(capsys)) == set(BROKER_KEYS)
    assert set(shown(capsys, "log.roll", "num.part*")) == {
        *("log.roll.hours", "log.roll.jitter.hours", "log.roll.jitter.ms", "log.roll.ms"),
        "num.partitions",
    }
    assert set(shown(capsys, "--kind", "group")) == set(GROUP_KEYS)


def test_the_table_has_configurations_with_an_effect(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config"]) == 0
    effective = capsys.readouterr().out
    assert run(["config", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(BROKER_KEYS) + 1
    assert len(effective.splitlines()) == sum(key.has_effect for key in BROKER_KEYS.values()) + 1
    assert effective.startswith("KEY")


def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--kind", "tropic"]) == EXIT_ERROR
    assert "broker, topic, group, client-metrics" in capsys.readouterr().err
    assert run(["config", "--set", "num.partitions=0"]) == EXIT_ERROR
    assert "Value must be at least 1" in capsys.readouterr().err
