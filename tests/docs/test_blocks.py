"""
Every shell and Python block of README and docs is run by a test, as it is pasted, or says here why it is not. What stands
behind a prompt is not pasted, since its addresses and directories are examples: its commands are parsed.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from kohort.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^( *)```(sh|python)\b[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\s*\$ (?:\w+=\S+ )*(kohort .*(?:\\\n.*)*)", re.MULTILINE)
PASTED: dict[str, tuple[int, tuple[str, ...]]] = {
    "README.md": (7, ("docs/test_tutorial.py", "pipeline/test_library.py")),
    "docs/conformance.md": (1, ()),
    "docs/howto/cluster.md": (4, ("docs/test_cluster.py",)),
    "docs/howto/custom-assignors.md": (3, ("docs/test_custom_assignors.py",)),
    "docs/howto/embed-the-runtime.md": (3, ("examples/test_guides.py",)),
    "docs/howto/failover.md": (5, ("docs/test_failover.py",)),
    "docs/howto/hanging-transaction.md": (5, ("docs/test_tutorial.py",)),
    "docs/howto/migrate-groups.md": (1, ("docs/test_migrate_groups.py",)),
    "docs/howto/spark-queries.md": (1, ("docs/test_spark_queries.py",)),
    "docs/pipeline.md": (9, ("pipeline/test_library.py",)),
    "docs/runtime.md": (9, ("examples/test_guides.py",)),
    "docs/testing.md": (14, ("docs/test_testing.py",)),
    "docs/tutorial.md": (17, ("docs/test_tutorial.py",)),
}
"""The number of blocks of a page, and the tests that run them."""
NOT_RUN = {
    ("docs/howto/custom-assignors.md", "    def assign_in_steps("): "a method of the class before it, in words",
    (
        "docs/howto/custom-assignors.md",
        "kohort serve --set group.consumer.assignors",
    ): "names a package that the reader installs",
    ("docs/pipeline.md", "17 * * * *"): "a table of cron",
    (
        "docs/pipeline.md",
        'cd "$(python -c',
    ): "needs a Spark cluster; tests/pipeline/test_zipped.py reads logs in this way",
    ("docs/pipeline.md", "export PYSPARK_SUBMIT_ARGS"): "downloads packages, whose versions the reader chooses",
    ("docs/testing.md", "pip install 'kohort[testing]'"): "installs packages",
    (
        "docs/testing.md",
        "pip install '/path/to",
    ): "installs packages, and runs for a minute: kohort_lab has its own tests",
    ("docs/conformance.md", "with KafkaNode("): "starts Apache Kafka, as the tests of conformance do",
}
"""Blocks that no test runs, by page and beginning, with the reason."""


def blocks(page: Path) -> list[str]:
    return [body for _, _, body in BLOCK.findall(page.read_text())]


def test_every_block_is_run_or_says_why_not() -> None:
    found = {str(page.relative_to(ROOT)): len(blocks(page)) for page in PAGES}
    assert {page: count for page, count in found.items() if count} == {
        page: count for page, (count, _) in PASTED.items()
    }
    for page, (_, tests) in PASTED.items():
        for test in tests:
            assert Path(page).name in (ROOT / "tests" / test).read_text(), f"{test} runs the blocks of {page}"


@pytest.mark.parametrize(("page", "begin"), NOT_RUN)
def test_a_block_that_is_not_run_is_there(page: str, begin: str) -> None:
    assert sum(body.lstrip().startswith(begin.lstrip()) for body in blocks(ROOT / page)) == 1


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for text in COMMAND.findall(page.read_text()):
            line = re.split(r" [|>&<;]| #", text.replace("\\\n", " "))[0].strip()
            if "..." not in line and not line.startswith(("kohort serve", "kohort --version")):
                found.append((page.stem, line))
    return found


def test_commands_are_found() -> None:
    assert len(commands()) > 60


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_behind_a_prompt_has_the_options_that_there_are(page: str, line: str) -> None:
    command: Any = typer.main.get_command(app)
    words, context = shlex.split(line)[1:], None
    try:
        while hasattr(command, "resolve_command"):
            context = command.make_context(command.name, words, parent=context)
            _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        command.make_context(command.name, words, parent=context)
    except click.UsageError as error:
        # Files and directories of the examples are not there.
        if "does not exist" not in error.format_message():
            pytest.fail(f"{page}: {line}: {error.format_message()}")
