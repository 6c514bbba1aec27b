"""The Dockerfile and the systemd unit: no container is started, but every file, option and command in them is checked."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kohort.cli.serve import parser
from kohort.cli.serve_settings import port_of
from kohort.testing.process import KOHORT
from kohort.testing.served import ServedKohort

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "kohort.service"
INSTRUCTIONS = {
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER"),
    *("VOLUME", "WORKDIR"),
}
SECONDS_MAX = 60.0


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments; continued lines are joined."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def one(name: str) -> str:
    """The arguments of the last instruction of a name; the earlier ones do not count in a container."""
    return [arguments for found, arguments in instructions() if found == name][-1]


def test_the_dockerfile_has_known_instructions_and_existing_files() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    stages = [arguments for name, arguments in instructions() if name == "FROM"]
    assert [stage.split(" AS ")[-1] for stage in stages[:-1]] == ["build"]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name, arguments in instructions():
        if name == "COPY" and not arguments.startswith("--from=build"):
            *sources, _ = arguments.split()
            for source in sources:
                assert (ROOT / source).exists()
                assert source in allowed, "the file .dockerignore keeps it out of the build"


def test_the_build_has_what_the_wheel_needs() -> None:
    """Source: pyproject.toml names the readme, the license, the build hook and the files that are put into the wheel."""
    copied = " ".join(arguments for name, arguments in instructions() if name == "COPY").split()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    tops = {name.partition("/")[0] for name in (*wheel["packages"], *wheel.get("force-include", ()))}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", *tops} <= set(copied)


def test_the_container_does_not_run_as_root_and_is_stopped_by_the_signal_that_the_broker_knows() -> None:
    user = one("USER")
    assert user not in ("root", "0")
    created = next(arguments for name, arguments in instructions() if name == "RUN" and "useradd" in arguments)
    assert created.endswith(f" {user}")
    assert one("STOPSIGNAL") == "SIGTERM"


def test_the_command_of_the_container_serves_and_its_probe_succeeds(tmp_path: Path) -> None:
    """With other ports and another directory. Before and after its life the probe fails."""
    command = json.loads(one("CMD"))
    assert json.loads(one("ENTRYPOINT")) == ["kohort"]
    options = parser().parse_args(command[1:])
    assert str(options.data_dir).startswith(one("VOLUME"))
    assert one("EXPOSE").split() == [str(port_of(options)), str(options.metrics_port)]
    replaced = [str(tmp_path / "data") if each == str(options.data_dir) else each for each in command]
    replaced[replaced.index(str(options.metrics_port))] = "0"
    with subprocess.Popen(
        [*KOHORT, *replaced, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        ready = broker.stdout.readline()
        port = re.search(r"metrics_port=(\d+)", ready)
        assert port is not None, ready
        probe = json.loads(one("HEALTHCHECK").partition("CMD ")[2])
        assert probe[0] == "python"
        assert f":{options.metrics_port}/" in probe[2]
        checked = [sys.executable, "-c", probe[2].replace(f":{options.metrics_port}/", f":{port[1]}/")]
        assert subprocess.run(checked, timeout=SECONDS_MAX, check=False).returncode == 0
        broker.terminate()
        assert broker.wait(SECONDS_MAX) == 0
        lines = [line for line in broker.stderr.read().splitlines() if line != "kohort stopped"]
    assert all("event" in json.loads(line) for line in lines), "the command asks for JSON lines"
    assert subprocess.run(checked, capture_output=True, timeout=SECONDS_MAX, check=False).returncode != 0


def settings() -> dict[str, str]:
    pairs = (line.partition("=") for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def test_the_unit_starts_the_broker_in_its_state_directory() -> None:
    program, *arguments = shlex.split(settings()["ExecStart"].replace("$KOHORT_OPTIONS", ""))
    assert Path(program).name == "kohort"
    options = parser().parse_args(arguments[1:])
    assert arguments[0] == "serve"
    assert str(options.data_dir).startswith(f"/var/lib/{settings()['StateDirectory']}/")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "kohort.service"
    copy.write_text(UNIT.read_text().replace("/opt/kohort/bin/kohort", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_broker_tells_the_service_manager_when_it_is_ready_and_when_it_stops(
    is_abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: sd_notify(3). An address that begins with @ is in the abstract namespace."""
    if is_abstract and sys.platform != "linux":
        pytest.skip("abstract sockets are Linux's")
    name = f"kohort-{os.getpid()}" if is_abstract else str(tmp_path / "s")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if is_abstract else name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if is_abstract else name)
        manager.settimeout(SECONDS_MAX)
        with ServedKohort(tmp_path / "broker"):
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"
