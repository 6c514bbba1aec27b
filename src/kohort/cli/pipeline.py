"""`kohort pipeline`: tables out of coordinator logs, with Spark."""

import typer

app = typer.Typer(name="pipeline", no_args_is_help=True, help="Tables out of the logs of coordinators, with Spark.")
