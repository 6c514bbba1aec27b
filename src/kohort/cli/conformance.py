"""`kohort conformance`: the report card of a broker, with a recorded run of Apache Kafka as reference."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap
from kohort.cli.output import print_json, print_table
from kohort.client.addresses import Address, parse_bootstrap
from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.conformance.cluster import Progress
    from kohort.conformance.comparison_run import Report
    from kohort.conformance.recording import Recording
    from kohort.conformance.scenario import Scenario
    from kohort.conformance.scenario_run import Restart

SHOWN = 20
EXIT_DIFFERENT = 1


def conformance(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    story: Annotated[
        list[str] | None,
        typer.Option("--story", metavar="NAME", help="Only stories whose name begins so; may be given often."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="NAME", help="No stories whose name begins so; may be given often."),
    ] = None,
    report: Annotated[Path | None, typer.Option("--html", help="Write the report card as a page to this file.")] = None,
    recording: Annotated[Path | None, typer.Option("--recording", help="Another recording as reference.")] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart",
            metavar="COMMAND",
            help="A shell command that stops the broker if it runs and starts it again at the same address: for stories with a"
            " restart, and for a broker that dies.",
        ),
    ] = None,
    concurrent: Annotated[int, typer.Option("--concurrent", min=1, help="How many stories are told at a time.")] = 32,
    shown: Annotated[int, typer.Option("--shown", min=0, help="How many differences are printed.")] = SHOWN,
    is_list: Annotated[bool, typer.Option("--list", help="Only list the stories.")] = False,
    is_settings: Annotated[
        bool, typer.Option("--settings", help="Only print the settings that the broker needs.")
    ] = False,
    is_json: AsJson = False,
) -> None:
    """
    Ask a broker what Apache Kafka was asked, and show every difference in the answers.

    The broker gets topics and groups whose names begin with "kc-"; use one that is there for the purpose, with the settings
    that --settings prints. Exit code 1 when there are differences.
    """
    from kohort.conformance import card, coverage, library
    from kohort.conformance.recording import load

    if is_settings:
        print("".join(f"{key}={value}\n" for key, value in library.SETTINGS.items()), end="")
        return
    home = library.home()
    stories = [
        each
        for each in library.all_stories(home)
        if (not story or each.name.startswith(tuple(story))) and not each.name.startswith(tuple(skip or ()))
    ]
    if is_list:
        print_table(("story", "about"), [{"story": each.name, "about": each.about} for each in stories])
        return
    result = asyncio.run(
        _told(
            parse_bootstrap(bootstrap)[0],
            load(recording or home / "recorded" / library.RECORDED),
            stories,
            restart=restart,
            concurrent=concurrent,
        )
    )
    if report is not None:
        report.write_text(card.html(result))
    found = [row.as_dict() for row in card.rows(result)]
    if is_json:
        print_json(found)
    else:
        print_table(card.COLUMNS, found)
        for difference in result.differences[:shown]:
            print(difference)
    for subject in coverage.by_subject(result):
        print(coverage.sentence(subject), file=sys.stderr)
    print(card.summary(result), file=sys.stderr)
    if result.differences:
        raise typer.Exit(EXIT_DIFFERENT)


async def _told(
    address: Address, recording: "Recording", stories: "list[Scenario]", *, restart: str | None, concurrent: int
) -> "Report":
    """The stories that the recording knows, told to the broker and compared."""
    from kohort.conformance import library
    from kohort.conformance.cluster import Cluster
    from kohort.conformance.comparison_run import Recorded, compare_brokers

    cluster = await Cluster.connect(address.host, address.port, None if restart is None else _restarting(restart))
    try:
        return await compare_brokers(
            cluster,
            Recorded(recording.outcomes),
            [story for story in stories if story.name in recording.outcomes],
            broker=str(address),
            reference=f"a recording of {recording.broker}",
            deliberate=library.deliberate_differences(library.home()),
            concurrent=concurrent,
            progress=_progress(),
        )
    finally:
        cluster.close()


def _restarting(command: str) -> "Restart":
    async def restart() -> None:
        process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.DEVNULL)
        code = await process.wait()
        if code:
            raise ConfigError(f"the command that restarts the broker ended with exit code {code}: {command}")

    return restart


def _progress() -> "Progress | None":
    """A line on a terminal that says how many stories have been told."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        print(f"\r{done} of {total} stories", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show
