"""`kohort fault`, `hold`, `event`, `wait` and `requests`: the command line over the control port."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.cli.control import times
from kohort.cli.main import run
from kohort.control.operations import clock
from kohort.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True) as started:
        yield started


@pytest.fixture(autouse=True)
def _address(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_CONTROL_ADDRESS", broker.control)
    for fault in broker.faults():
        fault.remove()


def test_faults_are_added_listed_and_removed(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fault", "add", "api=OffsetCommit,Fetch", "group=1", "error=14", "after=true", "times=2"]) == 0
    said = capsys.readouterr().out
    fault = said.split()[1]
    assert said == f"Fault {fault} was added\n"
    (found,) = [each for each in broker.faults() if each.id == fault]
    expected = {"api": ["OffsetCommit", "Fetch"], "group": "1", "error": "14", "after": True, "times": 2}
    assert found.state["spec"] == expected
    assert run(["fault", "list"]) == 0
    line = next(each for each in capsys.readouterr().out.splitlines() if each.startswith(fault))
    assert line.split()[1:6] == ["-", "error", "0", "0", "active"]
    assert run(["fault", "remove", fault, "fault-0-000000"]) == 0
    assert found.state["is_removed"]
    assert run(["fault", "list", "--json", "--scope", ""]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in rows if row["fault"] == fault] == ["removed"]


@pytest.mark.parametrize("way", ["text", "file", "input"])
def test_a_fault_is_json(
    way: str, tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"api": "Fetch", "observe": true, "scope": "mine"}'
    (tmp_path / "fault.json").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    argument = {"text": text, "file": f"@{tmp_path / 'fault.json'}", "input": "@-"}[way]
    assert run(["fault", "add", argument, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["effect"], row["scope"]) == ("observe", "mine")
    assert row["fault"] in [each.id for each in broker.faults()]


def test_a_wait_ends_with_the_hits_or_with_a_sentence(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    fault = broker.fault(api="Metadata", observe=True)
    assert run(["fault", "wait", fault.id, "--timeout", "0"]) == 2
    assert capsys.readouterr().err == f"kohort: {fault.id} has 0 hits and not 1: waited 0 s\n"
    assert run(["topics", "list", "--bootstrap", broker.bootstrap]) == 0
    capsys.readouterr()
    assert run(["fault", "wait", fault.id]) == 0
    assert capsys.readouterr().out == f"Fault {fault.id} has {fault.hits} hits\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["api"], "fields are KEY=VALUE, such as api=OffsetCommit; 'api' is not"),
        (["=x"], "fields are KEY=VALUE, such as api=OffsetCommit; '=x' is not"),
        (["{"], "'{' is not JSON: "),
        (["@/none/there"], "cannot read /none/there: No such file or directory"),
        (['{"a": 1}'], "there is no field 'a'"),
        (["grup=a", "error=5"], "there is no field 'grup'; did you mean group?"),
        (["error=5", "times=often"], "expected `int | null`, got `str`"),
        (["error=5", "answer={"], "'{' is not JSON: "),
        (["@/dev/null"], "'' is not JSON: "),
        (["error=5", "--control", "here"], "the address of a control port is HOST:PORT; it is 'here'"),
        (["error=5", "--control", "127.0.0.1:1"], "no control port answers at 127.0.0.1:1: "),
        (["error=5", "--control-token-file", "/none"], "cannot read the token file /none: "),
    ],
)
def test_bad_input_is_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fault", "add", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kohort: {sentence}"), said
    assert said.count("\n") == 1


def test_an_object_is_needed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "fault.json").write_text("[1]")
    assert run(["fault", "add", f"@{tmp_path / 'fault.json'}"]) == 2
    assert "a JSON object is needed" in capsys.readouterr().err


def test_a_hold_holds_until_it_is_released(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hold", "add", "api=Metadata", "client_id=nobody", "lease=30", "times=2"]) == 0
    hold = capsys.readouterr().out.split()[1]
    assert run(["hold", "wait", hold, "--timeout", "0"]) == 2
    assert capsys.readouterr().err == f"kohort: {hold} holds 0 and not 1: waited 0 s\n"
    assert run(["hold", "release", hold, "--count", "1"]) == 0
    assert run(["hold", "list"]) == 0
    line = next(each for each in capsys.readouterr().out.splitlines() if each.startswith(hold))
    assert line.split()[1:5] == ["-", "0", "0", "active"]
    assert run(["hold", "release", hold, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["waiting"]) == ("ended", 0)


def test_a_hold_of_a_point(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hold", "add", "point=rebalance.completion", "group=nobody"]) == 0
    hold = capsys.readouterr().out.split()[1]
    assert run(["hold", "release", hold]) == 0
    assert run(["hold", "add", "point=rebalance.complete"]) == 2
    assert "there is no point 'rebalance.complete'; did you mean rebalance.completion?" in capsys.readouterr().err


def test_states_are_waited_for(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wait", "group", "billing", "--state", "stable", "--members", "1", "--timeout", "0"]) == 2
    assert "the group 'billing' is absent with 0 members after 0 s" in capsys.readouterr().err
    assert run(["wait", "group", "billing", "--state", "absent"]) == 0
    assert capsys.readouterr().out == "Group billing is absent with 0 members\n"
    assert run(["wait", "group", "billing", "--state", "absent", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["members"] == []
    assert run(["wait", "transaction", "billing", "absent"]) == 0
    assert capsys.readouterr().out == "Transactional id billing is absent\n"
    name = broker.scope("test").topic()
    assert run(["wait", "topic", name]) == 0
    assert capsys.readouterr().out == f"Topic {name} is there\n"
    assert run(["wait", "topic", name, "--absent", "--timeout", "0"]) == 2
    assert "is still there" in capsys.readouterr().err


def test_requests_are_shown(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--bootstrap", broker.bootstrap]) == 0
    capsys.readouterr()
    assert run(["requests", "api=Metadata,Fetch", "--wait", "1", "--limit", "1"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[1:] == ["Metadata", "13", "kohort-cli", "answered", "-", "-"]
    assert run(["requests", "--keep-none"]) == 0
    assert run(["requests", "--wait", "1"]) == 2
    assert "the journal is off" in capsys.readouterr().err
    assert run(["requests", "--keep"]) == 0
    assert run(["requests", "api=Fetch", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_event_happens(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    name = broker.scope("test").topic()
    assert run(["event", "raise_leader_epoch", f"topic={name}", "partition=0"]) == 0
    assert capsys.readouterr().out == "raise_leader_epoch leader_epoch=1\n"
    assert run(["event", "fill_disk", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["event"] == "fill_disk"
    assert run(["event", "empty_disk"]) == 0
    capsys.readouterr()
    assert run(["event", "expire_membr", "group=billing"]) == 2
    assert "there is no /events/expire_membr; did you mean /events/expire_member?" in capsys.readouterr().err


def test_the_longest_advance_is_that_of_the_control_port() -> None:
    assert times.ADVANCE_SECONDS_MAX == clock.ADVANCE_SECONDS_MAX


def test_time_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clock", "advance", "1"]) == 2
    assert "the clock is real: start the broker with --virtual-time" in capsys.readouterr().err
    with Broker(virtual_time=True, in_process=True) as broker:
        address = ["--control", broker.control]
        before_ms = broker.clock.now_ms
        assert run(["clock", "timers", "--json", *address]) == 0
        pending = json.loads(capsys.readouterr().out)
        assert run(["clock", "advance", "0.5", "--step", "0.25", *address]) == 0
        assert broker.clock.now_ms == before_ms + 500
        assert run(["clock", "run-next", "--json", *address]) == 0
        out = capsys.readouterr().out
        assert json.loads(out[out.index("[") :])[0]["owner"] in [each["owner"] for each in pending]


def test_snapshots_and_resets(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(in_process=True) as broker:
        address = ["--control", broker.control]
        broker.create_topic("orders")
        assert run(["snapshot", "take", "--scope", "mine", *address]) == 0
        name = capsys.readouterr().out.split()[1]
        broker.create_topic("bills")
        assert run(["snapshot", "restore", name, *address]) == 0
        broker.wait_topic("bills", exists=False)
        assert run(["snapshot", "list", *address]) == 0
        assert capsys.readouterr().out.splitlines()[-1].split()[:2] == [name, "mine"]
        assert run(["snapshot", "remove", name, *address]) == 0
        assert run(["snapshot", "restore", name, *address]) == 2
        assert f"there is no snapshot '{name}'" in capsys.readouterr().err
        assert run(["reset", *address]) == 0
        assert capsys.readouterr().out == "The broker is clean\n"
        broker.wait_topic("orders", exists=False)
