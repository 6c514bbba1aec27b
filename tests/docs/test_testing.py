"""The blocks of docs/testing.md run as they are printed, and the tables of the testing kit have what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli.serve_settings import FOR_TESTS
from kohort.control.requests.faults import EFFECTS, FaultSpec
from kohort.control.requests.filters import Filter
from kohort.control.requests.holds import POINTS
from kohort.testing import Events
from kohort.testing.ports import free_ports
from tests.conftest import NIGHTLY

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "testing.md").read_text()
REFERENCE = (DOCS / "testing-reference.md").read_text()
KOHORT = f"{sys.executable} -m kohort.cli.main"
SECONDS_MAX = 300


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.clients
def test_the_tests(tmp_path: Path) -> None:
    program = "\n".join(blocks("python"))
    (tmp_path / "test_orders.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "kohort.testing.plugin"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(re.findall(r'^ *def test_', program, re.MULTILINE))} passed" in done.stdout


@NIGHTLY
@pytest.mark.clients
def test_the_commands(tmp_path: Path) -> None:
    """The output is that of all commands one after the other; the broker ends with the shell."""
    port, control = map(str, free_ports(2))
    script = "set -e\n" + "".join(blocks("sh")[1:3]) + "\nwait -n 2>/dev/null & exit 0\n"
    script = re.sub(r"^kohort ", f"{KOHORT} ", script, flags=re.MULTILINE)
    script = script.replace(":9192", f":{control}").replace("9192", control).replace("9092", port)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KOHORT_")}
    environment |= {"KOHORT_BOOTSTRAP": f"127.0.0.1:{port}", "KOHORT_CONTROL_ADDRESS": f"127.0.0.1:{control}"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for said in (
        f'"bootstrap":"127.0.0.1:{port}"',
        "Group billing is absent with 0 members",
        "error=NOT_LEADER_OR_FOLLOWER times=2",
        "raise_leader_epoch leader_epoch=1",
        '"value":"bill 1"',
    ):
        assert said in done.stdout
    assert re.search(r"^ *\d+ +CreateTopics +\d+ +kohort-cli +answered", done.stdout, re.MULTILINE)
    assert (tmp_path / "openapi.json").exists()
    assert "urn:kohort:problem" not in done.stdout


def test_the_tables_have_every_filter_trigger_effect_point_and_event() -> None:
    words = set(re.findall(r"`(\w+(?:\.\w+)?)", PAGE))
    assert words >= set(Filter.__struct_fields__)
    assert words >= set(EFFECTS)
    assert words >= set(POINTS)
    assert words >= {name for name in vars(Events) if not name.startswith("_")}
    triggers = {"times", "on_call", "always", "probability", "after_fault", "after", "scope"}
    assert words >= triggers
    rest = set(FaultSpec.__struct_fields__) - set(Filter.__struct_fields__) - set(EFFECTS) - triggers
    assert rest == {"message", "place", "seed"}, "fields of the reference only"


def test_the_table_has_the_configurations_of_the_preset() -> None:
    """Those of share and streams groups are those of consumer groups."""
    _, _, section = REFERENCE.partition("## The configurations of `--for-tests`")
    rows = [line for line in section.splitlines() if re.match(r"\| `[\w.]+\.", line)]
    values = {}
    for row in rows:
        names, value = row.strip("| ").split(" | ")
        for name in re.findall(r"`([\w.]+)`", names):
            values[name] = value.split(":")[0].strip("`")
    for name, value in FOR_TESTS.items():
        assert values.get(name, values.get(re.sub(r"\.(share|streams)\.", ".consumer.", name))) == value, name
