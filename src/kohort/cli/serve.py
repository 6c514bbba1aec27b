"""
`kohort serve`: one broker in the foreground.

Parsed by the standard library: people start a broker in every test, and what the other commands are parsed by costs 100 ms
to import (see "Start-up is a budget" in DESIGN.md).
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kohort.storage.durability.recovery import Recovered

EXIT_FAILED = 1
"""The disk failed while serving."""
SWITCH_INTERVAL_SECONDS = 0.0001
"""How long a thread may hold the interpreter while another one asks for it; Python's default is fifty times that."""

PROGRESS_SECONDS = 0.2
"""How long a line of progress stays as it is."""

SUMMARY = "Run a broker until it is told to stop (SIGTERM, or Ctrl-C)."

_DESCRIPTION = f"""\
{SUMMARY}

One line on stdout says when it is ready, and where:

  kohort ready host=127.0.0.1 port=9092 cluster_id=... data=...

Broker configurations come from --config, then from the environment (KOHORT_SET_NUM_PARTITIONS=3 sets num.partitions),
then from --set; the later one wins. docs/configuration.md lists those that have an effect."""

_EPILOG = """\
examples:
  kohort serve --data-dir ./data
  kohort serve --memory --port 0 --set num.partitions=3 --set group.initial.rebalance.delay.ms=0
  kohort serve --data-dir ./data --host 0.0.0.0 --advertised broker.example:9092"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Looks like the help of the other commands."""

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


def parser() -> argparse.ArgumentParser:
    """The options of `kohort serve`."""
    options = argparse.ArgumentParser(
        prog="kohort serve",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    where = options.add_argument_group("where it listens")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    where.add_argument("--port", type=_port, default=9092, help="port to listen on; 0 takes a free one (default: 9092)")
    where.add_argument("--advertised", metavar="HOST:PORT", help="what clients are told to connect to, if that differs")
    where.add_argument(
        "--metrics-port",
        type=_port,
        help="serve /metrics for Prometheus on this port, too; 0 takes a free one (default: nowhere)",
    )
    data = options.add_argument_group("where the logs are kept (one of the two)")
    data.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="in Apache Kafka's own layout; created if it is not there"
    )
    data.add_argument("--memory", action="store_true", help="in memory; nothing survives the end")
    options.add_argument(
        "--flush",
        choices=("commit", "os"),
        default="commit",
        help="commit: acknowledged means on the disk (default). os: acknowledged means handed to the operating system, which "
        "is how Apache Kafka runs by default; a machine that loses power may lose it",
    )
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker configuration by Kafka's name; repeatable",
    )
    options.add_argument(
        "--config", type=Path, metavar="FILE", help="broker configurations: TOML, or Kafka's server.properties"
    )
    logs = options.add_argument_group("what is logged on stderr")
    logs.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    logs.add_argument("--log-format", choices=("text", "json"), default="text")
    return options


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to 65535")
    return int(text)


def serve(arguments: Sequence[str]) -> None:
    """
    Serve until told to stop.

    Raises:
        ConfigError: something that was asked for cannot be had.
        SystemExit: 2, the options are off; 0, the help was asked for.
    """
    options = parser().parse_args(arguments)
    if options.memory and options.data_dir is not None:
        raise ConfigError("--memory keeps nothing on the disk: give either --memory or --data-dir")
    if not options.memory and options.data_dir is None:
        raise ConfigError("where are the logs to be kept? Give --data-dir DIR, or --memory to keep nothing")

    from kohort.broker.configs.definitions import BrokerConfig
    from kohort.server.logs import configure_logs
    from kohort.server.settings import Settings, parse_host_port

    configure_logs(options.log_level, options.log_format)
    _run(
        Settings(
            host=options.host,
            port=options.port,
            advertised=parse_host_port(options.advertised, "--advertised") if options.advertised else None,
            metrics_port=options.metrics_port,
            data_dir=options.data_dir,
            flush=options.flush,
            config=BrokerConfig.load(sets=options.set, file=options.config, environment=os.environ),
        )
    )


def _run(settings: object) -> None:
    try:
        from uvloop import run
    except ImportError:  # not to be had everywhere
        run = asyncio.run
    run(_serve(settings))


def _recovery_line() -> "Callable[[Recovered], None]":
    """A line on a terminal that says how far a recovery is."""
    shown_at = [0.0]

    def show(recovered: "Recovered") -> None:
        now = time.monotonic()
        is_over = recovered.partitions == recovered.partitions_total
        if not recovered.partitions_total or not sys.stderr.isatty():
            return
        if now - shown_at[0] < PROGRESS_SECONDS and not is_over:
            return
        shown_at[0] = now
        mib, total_mib = recovered.scanned_bytes / (1 << 20), recovered.bytes_total / (1 << 20)
        line = (
            f"recovering: {mib:,.0f} of {total_mib:,.0f} MiB checked, "
            f"{recovered.partitions} of {recovered.partitions_total} partitions"
        )
        print("\r" + line, end="\n" if is_over else "", file=sys.stderr, flush=True)

    return show


async def _serve(settings: object) -> None:
    from kohort.server.node import Node
    from kohort.server.settings import Settings

    assert isinstance(settings, Settings)
    # The flusher's thread has a few lines to run after each flush, and every waiting client waits for them.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    failures: list[str] = []

    def fail(reason: str) -> None:
        failures.append(reason)
        stopping.set()

    node = Node(settings, loop, on_failure=fail, on_recovery=_recovery_line())
    try:
        host, port = await node.start()
        where = "memory" if settings.data_dir is None else str(settings.data_dir)
        metrics = "" if node.metrics_port is None else f" metrics_port={node.metrics_port}"
        print(f"kohort ready host={host} port={port} cluster_id={node.cluster_id} data={where}{metrics}", flush=True)
        await stopping.wait()
    finally:
        await node.stop()
    if failures:
        print(
            f"kohort: {failures[0]}. Nothing was acknowledged since. Look after the disk and start again: what was "
            "acknowledged is recovered",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_FAILED)
    print("kohort stopped", file=sys.stderr)
