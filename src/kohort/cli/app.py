"""All commands in one typer app."""

from typing import Annotated

import typer

from kohort import __version__
from kohort.cli import config, log, offsets, store, top
from kohort.cli.brokers import commands as brokers
from kohort.cli.completion import ServeCommand
from kohort.cli.control import events, faults, holds, times, waits
from kohort.cli.demo import command as demo
from kohort.cli.groups import write_commands as groups
from kohort.cli.nodes import commands as nodes
from kohort.cli.options import new_app
from kohort.cli.pipeline import commands as pipeline
from kohort.cli.security import acls, tokens, users
from kohort.cli.serve import SUMMARY as SERVE_SUMMARY
from kohort.cli.serve import serve
from kohort.cli.topics import commands as topics
from kohort.cli.transactions import write_commands as transactions
from kohort.compiled import is_compiled

_EPILOG = """\
Commands for a cluster take --bootstrap HOST:PORT, or the environment variable KOHORT_BOOTSTRAP, and work with Apache Kafka,
too. TLS and SASL settings are read from a --command-config FILE. --json prints JSON instead of a table.

\b
  kohort demo                                  see in seconds what the logs of a cluster tell
  kohort serve --data-dir ./kohort-data        start a broker on 127.0.0.1:9092
  kohort config log.retention                  show configurations, and what they mean
  kohort topics create orders --partitions 6   create a topic
  kohort brokers stop 2                        stop one of `kohort serve --brokers 3`
  kohort groups describe billing               show members, offsets and lag
  kohort groups reset-offsets billing --topic orders --to-earliest
  kohort transactions find-hanging             find transactions that block consumers for ever
  kohort users set alice                       give a user a password
  kohort acls create --principal User:alice --producer --topic orders
  kohort top                                   watch what a broker does
  kohort fault add api=Produce error=NOT_ENOUGH_REPLICAS       let a request of a client fail
  kohort log dump FILE                         print a segment or an index
  kohort store init postgresql://db/kohort     make a store in a database, for `kohort serve --store`
  kohort cluster status postgresql://db/kohort  show the nodes that share a store
  kohort pipeline --help                       explain what groups did, from their logs

Exit codes: 0; 1 when `log verify` or `store verify` finds damage, or `cluster status` a missing node;
2 after an error, with a sentence on stderr; 130 after an interrupt."""

app = new_app(
    help="A Kafka-compatible coordinator in Python: broker, command line, and Spark over its logs.",
    epilog=_EPILOG,
)


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"kohort {__version__} ({'compiled' if is_compiled() else 'plain'})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print version and build (compiled or plain).",
        ),
    ] = False,
) -> None:
    pass


@app.command(
    "serve",
    help=SERVE_SUMMARY,
    cls=ServeCommand,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _serve(context: typer.Context) -> None:
    serve(context.args)


app.command("demo", epilog=demo.EPILOG)(demo.demo)
app.add_typer(brokers.app)
app.add_typer(topics.app)
app.add_typer(groups.app)
app.add_typer(transactions.app)
app.command("offsets", epilog=offsets.EPILOG)(offsets.offsets)
app.command("config", epilog=config.EPILOG)(config.config)
app.command("top", epilog=top.EPILOG)(top.top)
app.add_typer(users.app)
app.add_typer(acls.app)
app.add_typer(tokens.app)
app.add_typer(pipeline.app)
app.add_typer(faults.app)
app.add_typer(holds.app)
app.command("event", epilog=events.EPILOG)(events.event)
app.add_typer(waits.app)
app.add_typer(times.clock)
app.add_typer(times.snapshot)
app.command("reset", epilog=times.RESET_EPILOG)(times.reset)
app.command("requests", epilog=waits.REQUESTS_EPILOG)(waits.requests)
app.add_typer(log.app)
app.add_typer(store.app)
app.add_typer(nodes.app)
