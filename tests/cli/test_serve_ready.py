"""`kohort serve` for programs that start it: presets, the ready line and file as JSON, the end of the parent process."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kohort.broker.configs.definitions import keys_of
from kohort.cli.main import run
from kohort.cli.parent import watch_parent
from kohort.cli.serve import parser
from kohort.cli.serve_ready import ReadyFile
from kohort.cli.serve_settings import FOR_TESTS, configs_for_tests, node_settings
from kohort.model.errors import ConfigError
from kohort.server.settings import Settings
from kohort.testing.process import KOHORT
from kohort.wire.apis import RELEASES

SECONDS_MAX = 60.0


def settings_of(*arguments: str) -> Settings:
    with node_settings(parser().parse_args(arguments), {}) as settings:
        return settings


@pytest.mark.parametrize("release", RELEASES)
def test_the_preset_sets_what_the_release_has_and_what_has_an_effect(release: str) -> None:
    found = configs_for_tests(release)
    known = keys_of(release).broker
    assert found == {name: text for name, text in FOR_TESTS.items() if name in known and known[name].has_effect}
    assert {"group.initial.rebalance.delay.ms", "transaction.state.log.min.isr"} <= found.keys()
    assert ("group.consumer.assignment.interval.ms" in found) == (release != "4.2.1")


def test_the_names_of_the_preset_are_those_of_kafka() -> None:
    assert FOR_TESTS.keys() <= keys_of(RELEASES[-1]).broker.keys()


def test_a_broker_for_tests_is_in_memory_on_a_free_port() -> None:
    settings = settings_of("--for-tests")
    assert (settings.port, settings.data_dir) == (0, None)
    assert settings.config.get_int("group.initial.rebalance.delay.ms") == 0
    assert not settings.config.unknown


def test_the_preset_refuses_configurations_that_are_not_known() -> None:
    misspelled = ("--set", "group.initial.rebalance.dely.ms=0")
    hint = r"'group.initial.rebalance.dely.ms'; did you mean group.initial.rebalance.delay.ms\?"
    with pytest.raises(ConfigError, match=f"nothing reads the configuration {hint}"):
        settings_of("--for-tests", *misspelled)
    with pytest.raises(ConfigError, match=r"nothing reads the configuration 'my_own-key' \("):
        settings_of("--for-tests", "--set", "my_own-key=1")
    assert settings_of("--memory", *misspelled).config.unknown
    assert settings_of("--for-tests", "--kafka-image", *misspelled).config.unknown


def test_the_preset_says_what_only_clients_can_set() -> None:
    command = [*KOHORT, "serve", "--for-tests"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("kohort ready ")
        process.terminate()
        assert "heartbeat.interval.ms=100" in process.communicate(timeout=SECONDS_MAX)[1]


def test_options_win_over_the_preset(tmp_path: Path) -> None:
    settings = settings_of(
        "--for-tests", "--port", "9999", "--data-dir", str(tmp_path), "--set", "group.initial.rebalance.delay.ms=7"
    )
    assert (settings.port, settings.data_dir) == (9999, tmp_path)
    assert settings.config.get_int("group.initial.rebalance.delay.ms") == 7


def test_without_the_preset_kafkas_defaults_hold() -> None:
    settings = settings_of("--memory")
    assert settings.port == 9092
    assert settings.config.explicit == {}


def test_the_ready_line_is_json_and_the_file_has_it_while_the_broker_runs(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("of an earlier run")
    command = [*KOHORT, "serve", "--for-tests", "--json", "--ready-file", str(file), "--brokers", "2"]
    with subprocess.Popen([*command, "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        ready = json.loads(broker.stdout.readline())
        assert json.loads(file.read_text()) == ready
        broker.terminate()
        assert broker.wait(SECONDS_MAX) == 0
    assert list(tmp_path.iterdir()) == []
    assert ready["brokers"]["1"] == f"{ready['host']}:{ready['port']}"
    assert ready["bootstrap"] == ",".join(ready["brokers"].values()) == ",".join(ready["listeners"])
    assert ready["data"] == "memory"
    assert ready["metrics_port"] > 0
    assert ready["control_socket"].endswith(f"{ready['cluster_id']}.sock")


def test_a_ready_file_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"none/ready of --ready-file cannot be written: No such file or directory"):
        ReadyFile(tmp_path / "none" / "ready").write(b"{}")
    (tmp_path / "stale").write_text("of a run that was killed")
    ReadyFile(tmp_path / "stale")
    assert not (tmp_path / "stale").exists()
    (tmp_path / "ready").mkdir()
    assert run(["serve", "--for-tests", "--ready-file", str(tmp_path / "ready")]) == 2
    assert "ready of --ready-file cannot be removed: " in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["ready"]


def test_the_broker_stops_when_its_parent_was_killed() -> None:
    """The parent hands its standard output to the broker, so the output ends when both have ended."""
    program = f"""
        import os, signal, subprocess, sys
        command = [*{list(KOHORT)!r}, "serve", "--for-tests", "--json", "--exit-with-parent"]
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stdout)
        broker.stdout.readline()
        print("ready", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-9, "")
    assert [line for line in done.stdout.splitlines() if line in ("ready", "kohort stopped")] == [
        "ready",
        "kohort stopped",
    ]


def test_where_no_descriptor_of_a_process_exists_its_parent_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr("kohort.cli.parent.POLL_SECONDS", 0)
    parents = [7, 7, 7, 1]
    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0))

    async def wait() -> None:
        ended = asyncio.Event()
        watch_parent(asyncio.get_running_loop(), ended.set)
        await ended.wait()

    asyncio.run(wait())
    assert parents == []


def test_a_parent_outside_of_the_container_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)
    with pytest.raises(ConfigError, match="outside of its container"):
        watch_parent(asyncio.new_event_loop(), lambda: None)
