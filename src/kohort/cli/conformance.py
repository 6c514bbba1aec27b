"""`kohort conformance`: the report card of a broker, with a recorded run of Apache Kafka as reference."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap
from kohort.cli.output import print_json, print_table
from kohort.client.addresses import parse_bootstrap

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
    from kohort.conformance import card, library
    from kohort.conformance.recording import load
    from kohort.conformance.run import report as compared
    from kohort.conformance.run import told

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
    reference = load(recording or home / "recorded" / library.RECORDED)
    stories = [each for each in stories if each.name in reference.outcomes]
    address = parse_bootstrap(bootstrap)[0]
    result = compared(
        asyncio.run(told(address.host, address.port, stories, concurrent=concurrent)),
        reference.outcomes,
        stories,
        broker=str(address),
        reference=f"a recording of {reference.broker}",
        deliberate=library.deliberate_differences(home),
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
    print(card.summary(result), file=sys.stderr)
    if result.differences:
        raise typer.Exit(EXIT_DIFFERENT)
