"""Scripts are read, refused with a message, and give scenarios for every version."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import TRANSACTION_STATE, coordinator_partition
from kohort.records.serde import CoordinatorRecordSerde
from kohort.wire.batches import read_records
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from kohort_lab.conformance import library
from kohort_lab.conformance.generated.scenarios import (
    SCENARIOS,
    TRANSACTIONS,
    generated_scenario,
    generated_scenarios,
    generated_transactions,
)
from kohort_lab.conformance.scenarios.requests import request_frame, resolve
from kohort_lab.conformance.scenarios.scenario import Scenario, scenarios
from kohort_lab.conformance.scenarios.script import Script, ScriptError, Step, parse_script

HEARTBEAT: dict[str, Any] = {
    "about": "x",
    "1": {"send": "Heartbeat", "group_id": "@g", "generation_id": 1, "member_id": "m"},
}


def script(content: dict[str, Any], **more: Any) -> Script:
    return parse_script("test", {**content, **more}, {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"1": {"send": "Heartbeat"}}, "says nothing about"),
        ({"about": "x", "abuot": "y", "1": {}}, "unknown: abuot"),
        ({"about": "x"}, "not numbered upwards"),
        ({"about": "x", "2": {"pause_ms": 1}, "1": {"pause_ms": 1}}, "not numbered upwards"),
        ({"about": "x", "1": {"send": "Hartbeat"}}, "no API called Hartbeat"),
        ({"about": "x", "1": {"group_id": "g"}}, "fields without an API: group_id"),
        ({"about": "x", "1": {"pause_ms": "long"}}, "Expected `int`"),
        ({"about": "x", "1": {"receive": [2]}, "2": {"pause_ms": 1}}, "awaits 2"),
        ({"about": "x", "versions": {"Heartbeat": "3-9"}, "1": {"pause_ms": 1}}, "has no versions 3-9"),
        ({"about": "x", "versions": {"Heartbeat": "new"}, "1": {"pause_ms": 1}}, "in versions 'new'"),
    ],
)
def test_an_invalid_script_is_refused(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScriptError, match=sentence):
        parse_script("test", content, {})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"group": "g"}, "has no field group"),
        ({"generation_id": "one"}, "is a number"),
        ({"group_id": "$nobody"}, "nobody is not known"),
        ({"group_id": {"$magic": 1}}, "there is no \\$magic"),
        ({"group_id": 7}, "cannot be written"),
    ],
)
def test_fields_that_the_request_cannot_hold_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScriptError, match=sentence):
        request_frame(Step(label="1", send="Heartbeat", fields=fields), 4, 1, _lookup({}))


def test_a_scenario_for_every_version() -> None:
    found = list(scenarios([script(HEARTBEAT)]))
    assert [scenario.versions for scenario in found] == [{"Heartbeat": version} for version in range(5)]


def test_apis_with_fewer_versions_stay_at_their_newest() -> None:
    both = script(HEARTBEAT, versions={"JoinGroup": "7-9", "Heartbeat": "3-4"}, **{"2": {"send": "JoinGroup"}})
    assert [scenario.versions for scenario in scenarios([both])] == [
        {"Heartbeat": 3, "JoinGroup": 7},
        {"Heartbeat": 4, "JoinGroup": 8},
        {"Heartbeat": 4, "JoinGroup": 9},
    ]


def test_newest_only_and_versions_of_a_steps_own() -> None:
    found = list(scenarios([script(HEARTBEAT, newest_only=True, **{"2": {"send": "ApiVersions", "version": 99}})]))
    assert [scenario.versions for scenario in found] == [{"Heartbeat": 4}]
    assert found[0].version(found[0].steps[1]) == 99


def test_a_scenario_for_every_case() -> None:
    found = list(
        scenarios([script(HEARTBEAT, case=[{"name": "One two", "x": 1}, {"name": "three"}], newest_only=True)])
    )
    assert [scenario.name for scenario in found] == ["test/one-two/4", "test/three/4"]
    assert found[0].values["x"] == 1


def test_a_scenario_for_every_broker() -> None:
    found = list(scenarios([script(HEARTBEAT, brokers=["default", "tv1"], newest_only=True)]))
    assert [(scenario.name, scenario.broker) for scenario in found] == [("test/4", "default"), ("test/tv1/4", "tv1")]
    assert {name: len(group) for name, group in library.by_broker(found).items()} == {"default": 1, "tv1": 1}
    assert list(library.by_broker(found[1:])) == ["tv1"]


def test_a_broker_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "defaults.toml").write_text("")
    (tmp_path / "scripts" / "one.toml").write_text('about = "x"\nbrokers = ["fast"]\n[1]\npause_ms = 1')
    with pytest.raises(ScriptError, match="no broker called fast"):
        library.all_scenarios(tmp_path)


def test_settings_of_brokers_add_to_the_common_ones() -> None:
    assert library.settings("default") == library.SETTINGS
    assert library.settings("tv1") == library.SETTINGS | {"transaction.version": "1"}


def test_scripts_that_run_alone() -> None:
    assert [scenario.alone for scenario in scenarios([script(HEARTBEAT, alone=True, newest_only=True)])] == [True]
    assert not any(scenario.alone for scenario in scenarios([script(HEARTBEAT)]))


def test_every_request_of_every_scenario_can_be_written() -> None:
    written = 0
    for scenario in library.all_scenarios(library.home()):
        lookup = _lookup(_known(scenario))
        for step in scenario.steps:
            if step.send is not None or step.frame is not None:
                request_frame(step, scenario.version(step) if step.send else 0, 1, lookup)
                written += 1
    assert written > 5_000


def test_written_scripts_name_no_epoch_that_depends_on_the_release() -> None:
    """A member whose join is refused is told none. Any number is wrong of a stranger, and 9 is above every epoch."""
    found = set()
    for scenario in library.all_scenarios(library.home()):
        joined: set[Any] = set()
        for step in scenario.steps if not scenario.script.startswith("generated-") else ():
            member, epoch = (
                scenario.values.get(value[1:], value) if isinstance(value, str) and value.startswith("$") else value
                for value in (step.fields.get("member_id"), step.fields.get("member_epoch"))
            )
            if step.send == "ConsumerGroupHeartbeat" and epoch == 0:
                joined.add(member)
            if isinstance(epoch, int) and 0 < epoch < 9 and member in joined:
                found.add(scenario.script)
    assert found == {"consumer_disabled", "consumer_refused", "consumer_refused_order", "consumer_regex_invalid"}


def test_names_are_unique() -> None:
    names = [scenario.name for scenario in library.all_scenarios(library.home())]
    assert len(set(names)) == len(names)


def test_the_same_seed_is_the_same_scenario() -> None:
    assert [generated_scenario(seed) for seed in range(8)] == [generated_scenario(seed) for seed in range(8)]
    assert generated_scenario(0) != generated_scenario(4)
    assert len(list(generated_scenarios())) == SCENARIOS
    assert list(generated_transactions(3)) == list(generated_transactions(3))
    assert len(list(generated_transactions())) == TRANSACTIONS


def test_generated_transactions_are_of_every_level() -> None:
    assert {scenario.broker for scenario in generated_transactions()} == {"default", "tv1", "tv0"}


def test_level_0_has_no_requests_that_it_cannot_record() -> None:
    old = [scenario for scenario in generated_transactions() if scenario.broker == "tv0"]
    newest = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
    for scenario in old:
        for step in scenario.steps:
            assert scenario.version(step) <= newest.get(step.send or "", 99)
            assert not any(
                not each["verify_only"]
                for each in step.fields.get("transactions", ())
                if step.send == "AddPartitionsToTxn"
            )


def test_awaited_steps_of_generated_scenarios_came_before() -> None:
    for scenario in (*generated_scenarios(), *generated_transactions()):
        labels: list[str] = []
        for step in scenario.steps:
            assert set(step.receive) <= set(labels)
            labels.append(step.label)


def test_values_made_of_parts() -> None:
    step = Step(
        label="1",
        send="Heartbeat",
        fields={"group_id": "@g", "generation_id": {"$plus": ["$generation", 2]}, "member_id": {"$repeat": ["m", 3]}},
    )
    frame = request_frame(step, 4, 7, _lookup({"generation": 5}))[4:]
    header = read_request_header(frame)
    request = request_reader(12, 4)(frame, header[4])
    assert (header[:3], request.group_id, request.generation_id, request.member_id) == ((12, 4, 7), "kc-g", 7, "mmm")


@pytest.mark.parametrize(
    ("step", "frame"),
    [
        (Step(label="1", frame="00000000"), "00000000"),
        (Step(label="1", send="Heartbeat", body="ff", client_id="c"), "0000000c000c0000000000010001" + "63ff"),
        (Step(label="1", send="Metadata", version=99, client_id="c"), "0000000c0003006300000001000163" + "00"),
    ],
)
def test_frames_that_are_not_the_protocol(step: Step, frame: str) -> None:
    assert request_frame(step, step.version or 0, 1, _lookup({})).hex() == frame


def test_a_record_of_a_transactional_id_for_its_partition() -> None:
    lookup = _lookup({"pid": 7})
    batch = {"records": [{"$transaction": {"transactional_id": "@tx", "producer_id": "$pid", "producer_epoch": 32766}}]}
    (record,) = read_records(resolve({"$batch": batch}, lookup))
    found = CoordinatorRecordSerde(TRANSACTION_STATE).decode(record.key or b"", record.value)
    assert (found.transactional_id, found.producer_id, found.producer_epoch) == ("kc-tx", 7, 32766)
    assert (found.transaction_status, found.transaction_partitions) == (0, None)
    assert resolve({"$partition": ["@tx", 4]}, lookup) == coordinator_partition("kc-tx", 4)


def test_a_list_of_numbers_with_one_that_no_answer_had() -> None:
    step = Step(label="1", send="ListTransactions", fields={"producer_id_filters": ["$pid"], "state_filters": []})
    frame = request_frame(step, 0, 7, _lookup({"pid": ""}))[4:]
    assert request_reader(66, 0)(frame, read_request_header(frame)[4]).producer_id_filters == (0,)


def test_cut_and_lengthened_frames_say_their_size() -> None:
    step = Step(label="1", send="ApiVersions", cut_bytes=2, add_bytes="abcdef")
    whole = request_frame(Step(label="1", send="ApiVersions"), 0, 1, _lookup({}))
    changed = request_frame(step, 0, 1, _lookup({}))
    assert changed[4:] == whole[4:-2] + bytes.fromhex("abcdef")
    assert int.from_bytes(changed[:4], "big") == len(changed) - 4


def test_a_missing_directory_is_a_sentence(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        library.all_scenarios(tmp_path)


def _known(scenario: Scenario) -> dict[str, Any]:
    kept: dict[str, Any] = {name: "" for step in scenario.steps for name in step.keep}
    ids = {f"{topic}.id": UUID(int=1) for topic in scenario.topics}
    members = (name for step in scenario.steps for name in (*step.keep, step.fields.get("member_id")))
    return kept | ids | {f"{member}.epoch": 1 for member in members} | scenario.values


def _lookup(known: dict[str, Any]) -> Any:
    def lookup(name: str) -> Any:
        if name.startswith("@"):
            return "kc-" + name[1:]
        value = known[name[1:]]
        return lookup(value) if isinstance(value, str) and value.startswith(("@", "$")) else value

    return lookup
