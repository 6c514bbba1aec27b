"""Commands print the same of published tables as of the logs, and need no Spark for it."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.columns import TABLES
from kohort.cli.pipeline.commands import app
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables import contract
from kohort_lab.history import History
from tests.pipeline.lines import printed

COMMANDS = {
    "offsets": ("offsets",),
    "rebalances": ("rebalances",),
    "share_state": ("share",),
    "blocking_transactions": ("transactions", "--blocking"),
    "lag": ("lag",),
    "time_lag": ("lag", "--time"),
    "lag_over_time": ("lag", "--history"),
    "time_lag_over_time": ("lag", "--history", "--time"),
    "status_history": ("status", "--history"),
    "rebalance_costs": ("rebalances", "--cost"),
    "members": ("members",),
    "assignments": ("partitions", "--owners"),
    "partition_flapping": ("partitions",),
    "time_without_owner": ("partitions", "--unowned"),
    "commit_frequency": ("commits",),
    "transactions": ("transactions",),
    "open_transactions": ("transactions", "--open"),
    "transaction_statistics": ("transactions", "--statistics"),
}
DOCS = Path(__file__).parents[3] / "docs" / "pipeline.md"
CHOSEN = tuple(COMMANDS)
ALONE = """import sys
from kohort.cli.pipeline.commands import app
app(sys.argv[1:], standalone_mode=False)
print('pyspark' in sys.modules)
"""


@pytest.fixture(scope="module")
def told(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Path]:
    logs, out = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("out")
    History(8).write(logs)
    tables = Tables(Reading(engine, logs))

    def write(directory: Path) -> None:
        for name in CHOSEN:
            publish.write_parquet(getattr(tables, name), directory, name)

    published.publish(out, logs, write, made_of=[])
    return tables, out


def test_every_published_table_has_a_command() -> None:
    """The command `queries` needs checkpoints; tests/pipeline/checkpoints has it."""
    assert set(published.TABLES) - set(COMMANDS) == {"offset_commits", "damage", "status", "spark_queries"}
    assert {*COMMANDS, "verdicts", "spark_queries"} == set(TABLES)


def test_columns_are_those_that_readers_rely_on(told: tuple[Tables, Path]) -> None:
    """And those of the documentation."""
    for name in CHOSEN:
        assert tuple(getattr(told[0], name).columns) == contract.COLUMNS[name], name
    text = DOCS.read_text().partition("| table | one row for | columns |")[2]
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (and )?(`.*) \|$", text, re.MULTILINE)
    assert {name for name, *_ in rows} == set(contract.COLUMNS) == set(published.TABLES)
    for name, goes_on, columns in rows:
        documented = tuple(re.findall(r"`(\w+)`", columns))
        assert documented == (contract.COLUMNS[name][-len(documented) :] if goes_on else contract.COLUMNS[name]), name


@pytest.mark.parametrize("name", CHOSEN)
def test_the_same_lines(told: tuple[Tables, Path], name: str) -> None:
    tables, out = told
    expected = printed(publish.rows(getattr(tables, name), name), name)
    assert expected.count("\n") > 1
    command, *options = COMMANDS[name]
    assert CliRunner().invoke(app, [command, str(out), *options]).output == expected


def test_published_tables_are_read_without_spark(told: tuple[Tables, Path]) -> None:
    command = (sys.executable, "-c", ALONE, "rebalances", str(told[1]))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_other_settings_than_burrows_need_the_logs(
    told: tuple[Tables, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert CliRunner().invoke(app, ["status", str(told[1]), "--intervals", "5"]).exit_code == 2
    assert "published tables, with Burrow's default rules" in capfd.readouterr().err
