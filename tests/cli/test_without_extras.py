"""The command line without the dependencies of the pipeline, as a plain `pip install` leaves it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SECONDS_MAX = 60.0
PIPELINE = ("duckdb", "numpy", "pandas", "pyarrow", "pyspark")
CODE = f"""
import sys
for name in {PIPELINE!r}:
    sys.modules[name] = None  # an import raises ImportError
from kohort.cli.main import run
sys.exit(run(sys.argv[1:]))
"""

# fmt: off
COMMANDS = {  # exit code, and the begin of stdout or stderr
    "serve --help":                   (0, "Usage: kohort serve"),
    "topics --help":                  (0, "Usage: kohort topics"),
    "top --help":                     (0, "Usage: kohort top"),
    "config num.partitions":          (0, "KEY"),
    "pipeline --help":                (0, "Usage: kohort pipeline"),
    "pipeline report nowhere --out x.html": (2, "kohort pipeline: "),
}
# fmt: on


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_or_says_what_is_missing(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=SECONDS_MAX,
        check=False,
    )
    code, begin = COMMANDS[command]
    assert (done.returncode, (done.stdout if code == 0 else done.stderr)[: len(begin)]) == (code, begin)
    if code:
        assert len(done.stderr.splitlines()) == 1
        assert re.search(r"pip install 'kohort\[(tables|pipeline)\]'", done.stderr), "the sentence names an extra"


def test_a_plain_install_requires_nothing_that_only_the_pipeline_needs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    required, *extras = (
        {re.split(r"[<>=!~;\[ ]", text)[0] for text in texts}
        for texts in (
            project["dependencies"],
            *(project["optional-dependencies"][name] for name in ("pipeline", "tables")),
        )
    )
    needed = set().union(*extras) - {"kohort"}
    assert set(PIPELINE) <= needed
    assert not required & needed
