"""All commands in one typer app."""

from typing import Annotated

import typer

from kohort import __version__
from kohort.cli import conformance, log, offsets
from kohort.cli.groups import changes
from kohort.cli.pipeline import commands as pipeline
from kohort.cli.serve import SUMMARY as SERVE_SUMMARY
from kohort.cli.serve import serve
from kohort.cli.topics import commands as topics
from kohort.compiled import is_compiled

_EPILOG = """\
Commands that ask a cluster take --bootstrap HOST:PORT, or read KOHORT_BOOTSTRAP, and work with Apache Kafka too; how to connect
with TLS or SASL stands in a --command-config FILE. With --json they print an array of objects.

\b
  kohort serve --data-dir ./kohort-data        a broker on 127.0.0.1:9092
  kohort topics create orders --partitions 6   a topic
  kohort groups describe billing               members, offsets, lag
  kohort groups reset-offsets billing --topic orders --to-earliest
  kohort log dump FILE                         what a segment or an index says
  kohort conformance --html card.html          what a broker does otherwise than Apache Kafka
  kohort pipeline --help                       the history of groups, out of the logs

Exit codes: 0; 2 with a sentence on stderr when something is wrong; 130 after an interrupt."""

app = typer.Typer(
    name="kohort",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A Kafka-compatible coordinator in Python: broker, command line, and Spark over its logs.",
    epilog=_EPILOG,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"kohort {__version__}{' (compiled)' if is_compiled() else ''}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(
    "serve",
    help=SERVE_SUMMARY,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _serve(context: typer.Context) -> None:
    serve(context.args)


app.add_typer(topics.app)
app.add_typer(changes.app)
app.command("offsets", epilog=offsets.EPILOG)(offsets.offsets)
app.command("conformance")(conformance.conformance)
app.add_typer(pipeline.app)
app.add_typer(log.app)
