"""`kohort demo`: an hour passes, and its logs tell what happened."""

import json
from pathlib import Path

import pytest

from kohort.cli.main import run


def test_the_logs_tell_the_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "demo"
    assert run(["demo", "--json", "--data-dir", str(there)]) == 0
    told = json.loads(capsys.readouterr().out)
    verdicts = {(row["group"], row["topic"], row["partition"]): row for row in told["status"]}
    assert {place: (row["verdict"], row["lag"]) for place, row in verdicts.items()} == {
        ("billing", "orders", 0): ("OK", 0),
        ("billing", "orders", 1): ("OK", 0),
        ("billing", "orders", 2): ("STALL", 146),
        ("ledger", "payments", 0): ("STALL", 35),
        **{("audit", "orders", partition): ("STOP", 100) for partition in range(3)},
    }
    assert verdicts["audit", "orders", 0]["why"].startswith("the group has no members: audit-1 left, or expired, at ")
    assert verdicts["ledger", "payments", 0]["why"].endswith("it waits at the hanging transaction of settlement")
    changes = [
        (row["why"], [one["client_id"] for one in row["joined"]], [one["client_id"] for one in row["left"]])
        for row in told["rebalances"]
        if row["group"] == "billing"
    ]
    assert changes == [
        (["joined"], ["billing-1"], []),
        (["joined"], ["billing-2"], []),
        (["left"], [], ["billing-2"]),
        (["joined"], ["billing-2"], []),
    ]
    (held_up,) = told["transactions"]
    assert (held_up["transactional_id"], held_up["verdict"], held_up["duration_ms"]) == (
        "settlement",
        "hanging",
        35 * 60_000,
    )
    assert [one["at_ms"] for one in told["story"]] == sorted(one["at_ms"] for one in told["story"])
    assert told["story"][-1]["at_ms"] - told["story"][0]["at_ms"] == 40 * 60_000


def test_it_is_shown_again_in_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run(["demo"]) == 0
        shown = capsys.readouterr().out
        for text in ("STALL    146  commits repeat one offset", "settlement        35.0 min  hanging", "Try next:"):
            assert text in shown
        assert (tmp_path / "kohort-demo" / "__consumer_offsets-0").is_dir()


def test_other_directories_stay_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "file"
    mine.write_text("mine")
    for place in (tmp_path, mine):
        assert run(["demo", "--data-dir", str(place)]) == 2
        assert "is not empty, and not of an earlier demonstration" in capfd.readouterr().err
    assert mine.read_text() == "mine"
    assert run(["demo", "--data-dir", str(mine / "below")]) == 2
    assert "cannot be made: Not a directory; give another --data-dir DIR" in capfd.readouterr().err


def test_a_directory_with_a_broker_is_not_emptied(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from kohort.storage.files.checkpoint_formats import DirectoryLock

    (tmp_path / ".kohort-demo").touch()
    lock = DirectoryLock(tmp_path)
    try:
        assert run(["demo", "--data-dir", str(tmp_path)]) == 2
        assert "is in use by another process" in capfd.readouterr().err
    finally:
        lock.release()
    assert (tmp_path / ".kohort-demo").exists()
