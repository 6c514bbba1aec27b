"""
`kohort serve`: one broker in the foreground.

Options are parsed by argparse. Importing typer, which parses the other commands, takes 100 ms, and tests start many brokers.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.cli.kafka_image import started_lines
from kohort.cli.serve_control import add_control_options, control_of
from kohort.cli.serve_ready import ReadyFile, notify_service_manager, ready_json, ready_line
from kohort.cli.serve_security import add_security_options
from kohort.cli.serve_settings import CLIENTS_FOR_TESTS, PORT, node_settings
from kohort.model.errors import ConfigError
from kohort.model.numbers import is_number, is_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from kohort.server.logs import LogWriter
    from kohort.server.settings import Settings
    from kohort.storage.logs.recovery import RecoveryProgress

BROKERS_MAX = 16
"""Virtual brokers of one process."""
EXIT_FAILED = 1
"""Exit code after a disk failure, and if the stop finds acknowledged data missing."""
SWITCH_INTERVAL_SECONDS = 0.0001
"""Time slice of a thread while another thread waits for the interpreter lock. Python's default is 5 ms."""

PROGRESS_SECONDS = 0.2
"""Interval between updates of the progress line."""

SUMMARY = "Run a broker until SIGTERM or Ctrl-C."

_DESCRIPTION = f"""\
{SUMMARY}

When the broker is ready, it prints one line on stdout:

  kohort ready host=127.0.0.1 port=9092 cluster_id=... data=...

Broker configurations are read from --config, from the environment (KOHORT_NUM_PARTITIONS=3 sets num.partitions)
and from --set; the later source wins. docs/configuration.md lists the configurations that have an effect."""

_EPILOG = """\
examples:
  kohort serve --data-dir ./data
  kohort serve --memory --port 0 --set num.partitions=3 --set group.initial.rebalance.delay.ms=0
  kohort serve --for-tests --json --exit-with-parent
  kohort serve --store postgresql://db.example/kohort
  kohort serve --memory --brokers 3 --racks a,b,c
  kohort serve --memory --kafka 4.4
  kohort serve --memory --user alice:secret --tls
  kohort serve --data-dir ./data --host 0.0.0.0 --advertised broker.example:9092 --allow-anonymous"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in the style of the other commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)  # the parser makes a formatter for every option

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


@cache
def _columns() -> int:
    """The width of the terminal, as `shutil.get_terminal_size` finds it; that module imports compressions."""
    if is_number(os.environ.get("COLUMNS", ""), 3, 1_000):
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ is not None else 80
    except (OSError, ValueError):
        return 80


def parser() -> argparse.ArgumentParser:
    """Make the parser of `kohort serve`."""
    from kohort.wire.apis import DEFAULT_RELEASE, RELEASES, short_name

    options = argparse.ArgumentParser(
        prog="kohort serve",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    where = options.add_argument_group("listeners")
    where.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; with 0.0.0.0 or :: give --advertised, too (default: 127.0.0.1)",
    )
    where.add_argument(
        "--port",
        type=_port,
        help=f"port to listen on; 0 picks a free port (default: {PORT}, and 0 with --for-tests)",
    )
    where.add_argument(
        "--advertised",
        metavar="HOST:PORT",
        help="address for clients, if it differs from --host",
    )
    where.add_argument(
        "--metrics-port",
        type=_port,
        metavar="PORT",
        help="serve /metrics, /health and /ready on this port, for Prometheus, probes and `kohort top`; 0 picks a free port "
        "(default: none)",
    )
    add_security_options(options)
    add_control_options(options)
    brokers = options.add_argument_group("virtual brokers")
    brokers.add_argument(
        "--brokers",
        type=_broker_count,
        default=1,
        metavar="N",
        help=f"present N brokers over one store, with successive ids and ports; at most {BROKERS_MAX} (default: 1)",
    )
    brokers.add_argument(
        "--racks", metavar="RACK,...", help="rack of each broker, separated by commas (default: broker.rack for all)"
    )
    tests = options.add_argument_group("tests and programs that start a broker (docs/testing.md)")
    tests.add_argument(
        "--for-tests",
        action="store_true",
        help="a broker for tests: in memory unless --data-dir is given, on a free port unless --port is given; groups form at "
        "once, and sessions can be short",
    )
    tests.add_argument("--json", action="store_true", help="print the ready line as one line of JSON")
    tests.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="write the same JSON to a file, which exists while the broker is ready",
    )
    tests.add_argument(
        "--exit-with-parent", action="store_true", help="stop when the process that started this one has ended"
    )
    tests.add_argument(
        "--kafka-image",
        action="store_true",
        help="take the place of Apache Kafka's image: variables KAFKA_* are configurations, and lines of its log say when the "
        "broker is ready, as Testcontainers expects",
    )
    data = options.add_argument_group("storage (give one of the three)")
    data.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="data directory, in Apache Kafka's layout; created if it does not exist",
    )
    data.add_argument(
        "--store",
        metavar="URL",
        help="PostgreSQL database with a store that `kohort store init URL` has made, as postgresql://HOST/DATABASE",
    )
    data.add_argument("--memory", action="store_true", help="keep everything in memory; nothing survives a stop")
    options.add_argument(
        "--flush",
        choices=("commit", "os"),
        default="commit",
        help="when a write is acknowledged. commit: after a flush to disk (default). os: after the write to the page cache, as "
        "Apache Kafka does by default; a power failure can lose acknowledged data",
    )
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="broker configuration, by Kafka's name; repeatable",
    )
    options.add_argument(
        "--config", type=Path, metavar="FILE", help="file of broker configurations: TOML, or Kafka's server.properties"
    )
    options.add_argument(
        "--kafka",
        type=_release,
        default=DEFAULT_RELEASE,
        metavar="RELEASE",
        help="release of Apache Kafka whose APIs, versions, features and configurations clients see: "
        f"{' or '.join(map(short_name, RELEASES))} (default: {short_name(DEFAULT_RELEASE)})",
    )
    options.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME=LEVEL",
        help="finalised level of a feature, such as transaction.version=1 (default: the newest); repeatable",
    )
    logs = options.add_argument_group("logging on stderr")
    logs.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    logs.add_argument("--log-format", choices=("text", "json"), default="text")
    return options


def _broker_count(text: str) -> int:
    if not is_number(text, 1, BROKERS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of brokers: give a number from 1 to {BROKERS_MAX}")
    return int(text)


def _release(text: str) -> str:
    from kohort.wire.apis import release_named

    try:
        return release_named(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _port(text: str) -> int:
    if not is_port(text, 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return int(text)


def serve(arguments: Sequence[str]) -> None:
    """
    Run a broker until SIGTERM or SIGINT.

    Raises:
        ConfigError: a configuration is invalid, or the data directory or port cannot be used.
        SystemExit: 2 for invalid options, 0 after `--help`, 1 after a disk failure, or if acknowledged data is missing.
    """
    options = parser().parse_args(arguments)
    from kohort.server.logs import logs_on_stderr

    raise_open_files()
    with (
        logs_on_stderr(options.log_level, options.log_format) as log,
        node_settings(options, os.environ) as settings,
    ):
        _run(log, settings, options)


def _run(log: "LogWriter", settings: "Settings", options: argparse.Namespace) -> None:
    try:
        from uvloop import run
    except ImportError:  # uvloop does not exist for every platform
        run = asyncio.run
    failures, missing_data = run(_serve(settings, options, log))
    # The process ends even if nobody reads stderr: the log's thread writes these lines too.
    line = "kohort stopped"
    if failures:
        repair = "Repair the disk" if settings.store is None else "Repair the database"
        line = (
            f"kohort: {failures[0]}. Nothing was acknowledged after the failure. {repair} and start again: "
            "acknowledged data is recovered"
        )
    elif missing_data is not None:
        line = (
            f"kohort: stopped, and acknowledged data is missing: {missing_data}. The next start refuses the partition; "
            "`kohort log repair --dry-run` shows what can be kept"
        )
    log.write_line(line)
    log.flush()
    if failures or missing_data is not None:
        raise SystemExit(EXIT_FAILED)


def raise_open_files() -> None:
    """Allow as many open files as the hard limit does, for connections and segment files. The Java runtime does the same."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS has a lower limit than it tells
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _recovery_line() -> "Callable[[RecoveryProgress], None]":
    """Make a callback that shows the progress of recovery on a terminal."""
    shown_at = [0.0]

    def show(recovered: "RecoveryProgress") -> None:
        now = time.monotonic()
        is_done = recovered.partitions == recovered.partitions_total
        if not recovered.partitions_total or not sys.stderr.isatty():
            return
        if now - shown_at[0] < PROGRESS_SECONDS and not is_done:
            return
        shown_at[0] = now
        mib, total_mib = recovered.scanned_bytes / (1 << 20), recovered.bytes_total / (1 << 20)
        line = (
            f"recovering: {mib:,.0f} of {total_mib:,.0f} MiB checked, "
            f"{recovered.partitions} of {recovered.partitions_total} partitions"
        )
        print("\r" + line, end="\n" if is_done else "", file=sys.stderr, flush=True)

    return show


async def _serve(settings: "Settings", options: argparse.Namespace, log: "LogWriter") -> tuple[list[str], str | None]:
    """Serve until a signal or a failure; return the reasons of the failure, and what the stop found missing."""
    from kohort.server.heap import keep_freed_memory
    from kohort.server.node import Node, configure_garbage_collector

    keep_freed_memory()
    # The flusher thread runs a few lines after each flush, and clients wait for them.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if options.exit_with_parent:
        from kohort.cli.parent import watch_parent

        watch_parent(loop, stopping.set)
    ready_file = ReadyFile(options.ready_file)
    failures: list[str] = []

    def fail(reason: str) -> None:
        failures.append(reason)
        stopping.set()

    control = control_of(options, os.environ)
    node = Node(settings, loop, on_failure=fail, on_recovery=_recovery_line(), log=log)
    server = None
    try:
        await node.start()
        if control is not None:
            server = await control.start(node, settings.host)
        configure_garbage_collector()
        port = None if server is None else server.port
        content = ready_json(node, settings, port)
        ready_file.write(content)
        print(content.decode().rstrip() if options.json else ready_line(node, settings, port), flush=True)
        if options.for_tests and not options.json:
            print(CLIENTS_FOR_TESTS, file=sys.stderr, flush=True)
        if options.kafka_image:
            print(started_lines(next(iter(node.bound))), flush=True)
        notify_service_manager("READY=1")
        await stopping.wait()
        notify_service_manager("STOPPING=1")
    finally:
        ready_file.remove()
        if server is not None:
            await server.close()
        await node.stop()
    return failures, node.missing_data
