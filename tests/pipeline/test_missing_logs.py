"""
What each question answers without a log that it needs: the table in docs/pipeline.md, cell by cell. What is unknown is never
OK, and never left out without a word.

Each of the 88 answers takes a tenth of a second of the processor: a directory is read anew for each.
"""

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.cli.pipeline.export_command import check_source
from kohort.model.errors import ConfigError
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.tables.burrow.verdicts import NUMBERS, UNKNOWN
from tests.conftest import NIGHTLY

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
WHOLE = ""
Answer = tuple[str, Any]


def table() -> dict[str, dict[str, str]]:
    """The cells of the page, by question and by what is missing."""
    section = PAGE.read_text().partition("## Missing logs\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    titles, _, *others = rows
    return {
        row[0].strip("`"): {title.replace("`", ""): cell for title, cell in zip(titles[1:], row[1:], strict=True)}
        for row in others
    }


TABLE = table()


@pytest.fixture(scope="module")
def without(recorded: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a broker without some of its logs."""

    @cache
    def made(missing: str) -> Path:
        root = tmp_path_factory.mktemp("logs") / "data"
        name = missing.removeprefix("a part of ")
        lacks = {name} if name.startswith("__") else {"u-data", "u-txn"} if name else set()
        some = "012" if name.startswith("__") else "0"

        def left_out(_: str, names: list[str]) -> list[str]:
            logs = [re.fullmatch(r"(.+)-(\d+)", one) for one in names]
            return [log[0] for log in logs if log and log[1] in lacks and (missing == name or log[2] in some)]

        shutil.copytree(recorded("unclean-4.4.0") / "logs", root, ignore=left_out)
        return root

    return made


def answer(question: str, directory: Path) -> Answer:
    """What a command prints: its rows, and the sentence about logs that are not there."""
    if question == "export":
        return exported(directory)
    command, *options = question.split()
    if command == "report":
        options += ["--report", str(directory.parent / "report.html")]
    done = CliRunner().invoke(app, [command, str(directory), *options, "--engine", "local", "--json"])
    assert done.exit_code in (0, 2), done.output
    if done.exit_code:
        return "exit 2", None
    named = "named" if re.search(r"kohort pipeline: \S+ (has no|lacks)", done.stderr) else ""
    page = (directory.parent / "report.html").read_text() if command == "report" else None
    return named, json.loads(done.stdout) if page is None else page


def exported(directory: Path) -> Answer:
    try:
        check_source(str(directory), is_needed=True)
    except ConfigError:
        return "exit 2", None
    exporter = Exporter(str(directory))
    assert exporter.poll().problems == ()
    samples = [one for family in exporter.collect() for one in family.samples]
    shown = {"kohort_group_verdict", "kohort_hanging_transactions"}
    return "", {(one.name, one.labels.get("group")): one.value for one in samples if one.name in shown}


def told(question: str, found: Answer, whole: Answer) -> str:
    """The cell for an answer."""
    named, rows = found
    if named == "exit 2":
        return named
    if question == "report":
        if rows.count("UNKNOWN") > whole[1].count("UNKNOWN"):
            return "UNKNOWN"
        return "left out" if named else "same"
    if question == "export":
        return "UNKNOWN" if NUMBERS[UNKNOWN] in rows.values() else "same" if rows == whole[1] else "no series"
    if not named:
        assert rows == whole[1], "something else, without a word"
        return "same"
    if any(row.get("verdict") in ("UNKNOWN", "unknown") for row in rows):
        return "UNKNOWN"
    is_null = any(row.get("lag", 0) is None or row.get("lag_cost", 0) is None for row in rows)
    return "null" if is_null and len(rows) == len(whole[1]) else "left out"


LONGEST = {"report", "rebalances --cost", "lag --history"}
"""Questions whose answers take half of the time: in the nightly tier."""


@pytest.mark.parametrize("question", [pytest.param(name, marks=[NIGHTLY] if name in LONGEST else []) for name in TABLE])
def test_what_is_unknown_is_said(without: Callable[[str], Path], question: str) -> None:
    whole = answer(question, without(WHOLE))
    assert whole[0] == ""
    found = {missing: told(question, answer(question, without(missing)), whole) for missing in TABLE[question]}
    assert found == TABLE[question]


def test_the_log_of_groups_alone_names_the_partitions_that_members_own(
    recorded: Callable[[str], Path], tmp_path: Path
) -> None:
    """Assignments have ids of topics. Their names are beside the logs of topics, and in commits."""
    whole = recorded("main-4.4.0") / "logs"
    for directory in whole.glob("__consumer_offsets-*"):
        shutil.copytree(directory, tmp_path / directory.name)
    found = [
        {(row["group"], row["topic"], row["partition"]) for row in answer("lag", one)[1]} for one in (whole, tmp_path)
    ]
    assert found[0] == found[1]


def test_groups_that_are_left_out_do_not_pass_a_check(without: Callable[[str], Path]) -> None:
    source = str(without("a part of __consumer_offsets"))

    def checked(*options: str) -> tuple[int, str, bool]:
        done = CliRunner().invoke(app, ["status", source, "--fail-on", "LOST", "--engine", "local", *options])
        return done.exit_code, done.stdout, "has no log" in done.stderr

    assert checked() == (1, "", True)
    assert checked("--allow-unknown") == (0, "", False)
    group = json.loads(CliRunner().invoke(app, ["status", source, "--engine", "local", "--json"]).stdout)[0]["group"]
    assert checked("--group", group) == (0, "", True)


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("lag", "topics"),
        ("share", "__share_group_state"),
        ("rebalances", "a part of __consumer_offsets"),
        ("transactions --blocking", "a part of __transaction_state"),
        ("lag --history", "topics"),
    ],
)
def test_a_table_that_is_written_has_the_sentence_too(
    without: Callable[[str], Path], tmp_path: Path, question: str, missing: str
) -> None:
    for source, is_named in ((without(missing), True), (without(WHOLE), False)):
        out = ["--out", str(tmp_path / str(is_named)), "--engine", "local"]
        command, *options = question.split()
        done = CliRunner().invoke(app, [command, str(source), *options, *out])
        assert done.exit_code == 0, done.output
        assert bool(re.search(r"kohort pipeline: \S+ (has no|lacks)", done.stderr)) == is_named
