"""The command `kohort demo`."""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.output import print_json, print_table
from kohort.cli.pipeline.checks import errors_as_sentences
from kohort.cli.pipeline.options import CommandOptions
from kohort.model.allocator import use_one_allocator
from kohort.model.errors import ConfigError

DIRECTORY = Path("kohort-demo")
EPILOG = "Needs pip install 'kohort[tables]'. Example: kohort demo --json | jq .status"
_MARKER = ".kohort-demo"


def demo(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Where the logs stay, for questions of your own.")
    ] = DIRECTORY,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: the story, and what the logs tell.")
    ] = False,
) -> None:
    """
    Show in seconds what logs tell: lag, a rebalance, a hanging transaction.

    An hour of a cluster passes in virtual time, in this process: groups share partitions, a member is killed, a transaction is
    never ended. Then the pipeline reads the logs. It needs no broker, no client and no Java. DIR is emptied if it is of an
    earlier demonstration.
    """
    from kohort.model.text import printable

    begin = time.monotonic()
    use_one_allocator()
    with errors_as_sentences():
        import kohort.pipeline.engines.local.session  # noqa: F401 -- says what is not installed before anything happens
    _empty(data_dir)
    from kohort.cli.demo.story import play

    told = asyncio.run(play(data_dir, time.time_ns() // 1_000_000_000 * 1_000))
    found = _answers(data_dir)
    if is_json:
        story = [{"at_ms": one.at_ms, "what": one.what} for one in told]
        print_json({"data_dir": str(data_dir), "story": story, **found})
        return
    from kohort.pipeline.report.formatting import instant

    typer.echo(f"An hour of a cluster, in {time.monotonic() - begin:.1f} s (UTC):\n")
    for one in told:
        typer.echo(f"  {instant(one.at_ms)[11:16]}  {one.what}")
    where = printable(str(data_dir))
    _print_answers(found, where)
    typer.echo(_NEXT.format(where=where))


_NEXT = """
The logs are in {where}, a data directory as Apache Kafka's. Try next:

  kohort pipeline report {where} --report demo.html      a page with charts of all this
  kohort pipeline lag {where} --time                     offsets, lag, and how long records have waited
  kohort serve --data-dir {where}                        a broker on these logs; then in another terminal:
  kohort groups describe billing
  kohort transactions find-hanging"""


def _empty(data_dir: Path) -> None:
    """
    Make the directory, or empty that of an earlier demonstration.

    Raises:
        ConfigError: it has other contents, a broker runs on it, or it cannot be made.
    """
    from kohort.storage.files.checkpoint_formats import DirectoryLock

    if data_dir.exists():
        if not data_dir.is_dir() or (any(data_dir.iterdir()) and not (data_dir / _MARKER).is_file()):
            raise ConfigError(
                f"{data_dir} is not empty, and not of an earlier demonstration; give another --data-dir DIR"
            )
        DirectoryLock(data_dir).release()
        shutil.rmtree(data_dir)
    try:
        data_dir.mkdir(parents=True)
        (data_dir / _MARKER).touch()
    except OSError as exc:
        raise ConfigError(f"{data_dir} cannot be made: {exc.strerror}; give another --data-dir DIR") from exc


def _answers(data_dir: Path) -> dict[str, list[dict[str, Any]]]:
    from kohort.cli.pipeline.verdicts import read_verdicts

    rows, tables, *_ = read_verdicts(CommandOptions(str(data_dir), engine="local"))
    return {
        "status": rows,
        "rebalances": tables["rebalances"].to_pylist(),
        "transactions": tables["blocking_transactions"].to_pylist(),
    }


def _print_answers(found: Mapping[str, Sequence[Mapping[str, Any]]], where: str) -> None:
    """Print what matters in so many columns as a terminal has; the commands have all."""
    from kohort.pipeline.report.formatting import duration, instant

    def ask(question: str, command: str) -> None:
        typer.echo(f"\n{question}  (kohort pipeline {command.format(where)})\n")

    ask("Which partitions wait, and why?", "status {}")
    waiting = [row for row in found["status"] if row["verdict"] != "OK"]
    print_table(("group", "topic", "partition", "verdict", "lag", "why"), waiting)
    ask("Who joined and left billing?", "rebalances {} --group billing")
    changes = [
        {
            "at": instant(row["completed_at_ms"])[11:19],
            "why": row["why"],
            "members": len(row["members"]),
            "joined": [one["client_id"] for one in row["joined"]],
            "left": [one["client_id"] for one in row["left"]],
            "moved": row["moved"],
        }
        for row in found["rebalances"]
        if row["group"] == "billing"
    ]
    print_table(("at", "why", "members", "joined", "left", "moved"), changes)
    ask("Which transaction holds readers up?", "transactions {} --hanging")
    hanging = [{**row, "open for": duration(row["duration_ms"])} for row in found["transactions"]]
    print_table(("topic", "partition", "transactional_id", "open for", "verdict", "blocked_records"), hanging)
