"""The entry point of the command line `kohort-lab`. Errors and exit codes are those of `kohort`."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import typer

from kohort.cli.main import exit_code
from kohort.cli.options import new_app
from kohort_lab.conformance.command import conformance

TOOLS = {
    "exactly-once": ("kohort_lab.exactly_once", "Kill processors in transactions; every record must come out once."),
    "work-queue": ("kohort_lab.work_queue", "Kill workers of a share group; no record may be lost, or come again."),
    "history-check": ("kohort_lab.history_check", "Kill clients of every library, and check what they were told."),
    "decisions": (
        "kohort_lab.authorization",
        "Ask Kohort and Apache Kafka what users may do under random access rules.",
    ),
    "fuzz": ("kohort_lab.fuzz", "Send hostile frames to a broker."),
}
"""Tools with command lines of their own, which `python -m MODULE` runs, too: module and summary by name."""

app = new_app(help="The laboratory of Kohort: compare, attack and kill brokers.")
app.command("conformance")(conformance)


def _runner(module: str) -> Callable[[typer.Context], None]:
    def run_tool(context: typer.Context) -> None:
        raise typer.Exit(import_module(f"{module}.__main__").main(context.args))

    return run_tool


for _name, (_module, _summary) in TOOLS.items():
    app.command(
        _name,
        help=_summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_runner(_module))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    return exit_code(lambda: app(args=arguments, prog_name="kohort-lab"), "kohort-lab")


if __name__ == "__main__":
    main()
