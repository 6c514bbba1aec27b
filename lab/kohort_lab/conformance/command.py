"""`kohort-lab conformance`: compare a broker with recorded answers of Apache Kafka."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli.options import BOOTSTRAP_DEFAULT, AsJson
from kohort.cli.output import print_json, print_table
from kohort.client.addresses import Address, parse_bootstrap
from kohort.model.errors import ConfigError
from kohort.model.suggestion import suggestion

if TYPE_CHECKING:
    from kohort_lab.conformance.brokers.cluster import Progress
    from kohort_lab.conformance.comparison_run import Report
    from kohort_lab.conformance.recording import Recording
    from kohort_lab.conformance.scenarios.scenario import Scenario
    from kohort_lab.conformance.scenarios.scenario_run import Restart

SHOWN = 20
EXIT_DIFFERENT = 1


def conformance(
    bootstrap: Annotated[
        str, typer.Argument(metavar="HOST:PORT", envvar="KOHORT_BOOTSTRAP", help="Address of a broker.")
    ] = BOOTSTRAP_DEFAULT,
    only: Annotated[
        list[str] | None,
        typer.Option("--scenario", metavar="PREFIX", help="Only scenarios whose names start with PREFIX; repeatable."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="PREFIX", help="Skip scenarios whose names start with PREFIX; repeatable."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--html", help="Write the report as an HTML page to this file.")
    ] = None,
    recording: Annotated[
        Path | None, typer.Option("--recording", help="Compare with this recording instead of the built-in one.")
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart",
            metavar="COMMAND",
            help="Shell command that stops the broker if it runs, and starts it at the same address. Used by scenarios with"
            " a restart, and if the broker crashes.",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--broker",
            metavar="NAME",
            help="Run the scenarios that need a broker with settings of its own: tv0, tv1, expiring or unverified.",
        ),
    ] = "default",
    concurrent: Annotated[
        int, typer.Option("--concurrent", min=1, help="Number of scenarios that run at a time.")
    ] = 32,
    shown: Annotated[int, typer.Option("--shown", min=0, help="Number of differences to print.")] = SHOWN,
    is_list: Annotated[bool, typer.Option("--list", help="List the scenarios and exit.")] = False,
    is_settings: Annotated[
        bool, typer.Option("--settings", help="Print the configurations that the broker needs and exit.")
    ] = False,
    is_json: AsJson = False,
) -> None:
    """
    Compare a broker with recorded Apache Kafka answers.

    Runs scenarios and prints each difference. Creates topics and groups whose names start with "kc-": use a broker only for
    this purpose, with the configurations that --settings prints. Exit code 1 if there are differences.
    """
    from kohort_lab.conformance import card, coverage, library
    from kohort_lab.conformance.recording import load

    if kind not in library.BROKERS:
        raise ConfigError(
            f"there are no scenarios for a broker called {kind}; there are for {', '.join(library.BROKERS)}."
        )
    if is_settings:
        print("".join(f"{key}={value}\n" for key, value in library.settings(kind).items()), end="")
        return
    home = library.home()
    every = library.all_scenarios(home)
    for prefix in (*(only or ()), *(skip or ())):
        if not any(each.name.startswith(prefix) for each in every):
            near = suggestion(prefix, [each.name for each in every])
            raise ConfigError(f"no scenario begins with {prefix!r}{near or '; see: kohort-lab conformance --list'}")
    if report is not None and not report.absolute().parent.is_dir():
        raise ConfigError(f"the report cannot be written to {report}: the directory does not exist")
    scenarios = [
        each
        for each in every
        if each.broker == kind
        and (not only or each.name.startswith(tuple(only)))
        and not each.name.startswith(tuple(skip or ()))
    ]
    if is_list:
        print_table(("scenario", "about"), [{"scenario": each.name, "about": each.about} for each in scenarios])
        return
    result = asyncio.run(
        _run(
            parse_bootstrap(bootstrap)[0],
            load(recording or library.recording_path()),
            scenarios,
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


async def _run(
    address: Address, recording: "Recording", scenarios: "list[Scenario]", *, restart: str | None, concurrent: int
) -> "Report":
    """Run the recorded scenarios on the broker and compare."""
    from kohort_lab.conformance import library
    from kohort_lab.conformance.brokers.cluster import Cluster
    from kohort_lab.conformance.comparison_run import Recorded, compare_brokers

    cluster = await Cluster.connect(address.host, address.port, None if restart is None else _restarting(restart))
    try:
        return await compare_brokers(
            cluster,
            Recorded(recording.outcomes),
            [each for each in scenarios if each.name in recording.outcomes],
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
            raise ConfigError(f"the --restart command ended with exit code {code}: {command}")

    return restart


def _progress() -> "Progress | None":
    """Make a callback that shows progress on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        print(f"\r{done} of {total} scenarios", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show
