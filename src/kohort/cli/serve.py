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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.cli.serve_security import (
    add_security_options,
    default_configs,
    default_protocol,
    make_certificates,
    metrics_token,
    users_of,
)
from kohort.model.errors import ConfigError
from kohort.model.numbers import is_number, is_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kohort.broker.cluster import Endpoint
    from kohort.server.logs import LogWriter
    from kohort.server.node import Node
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
  kohort serve --memory --brokers 3 --racks a,b,c
  kohort serve --memory --kafka 4.4
  kohort serve --memory --user alice:secret --tls
  kohort serve --data-dir ./data --host 0.0.0.0 --advertised broker.example:9092 --allow-anonymous"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in the style of the other commands."""

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


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
        "--port", type=_port, default=9092, help="port to listen on; 0 picks a free port (default: 9092)"
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
    data = options.add_argument_group("storage (give one of the two)")
    data.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="data directory, in Apache Kafka's layout; created if it does not exist",
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


def _racks(text: str | None, brokers: int) -> tuple[str, ...]:
    racks = tuple(rack.strip() for rack in text.split(",")) if text else ()
    if racks and (len(racks) != brokers or not all(racks)):
        raise ConfigError(
            f"--racks has {len(racks)} racks for --brokers {brokers}; give each broker one, such as a,b,c"
        )
    return racks


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
    if options.memory and options.data_dir is not None:
        raise ConfigError("--memory and --data-dir exclude each other; give one of them")
    if not options.memory and options.data_dir is None:
        raise ConfigError("no storage given; use --data-dir DIR, or --memory to keep nothing")

    from kohort.broker.configs.definitions import BrokerConfig
    from kohort.broker.features import parse_features
    from kohort.server.logs import configure_logs
    from kohort.server.settings import Settings, parse_host_port

    log = configure_logs(options.log_level, options.log_format)
    raise_open_files()
    users = users_of(options)
    load = partial(
        BrokerConfig.load, sets=options.set, file=options.config, environment=os.environ, release=options.kafka
    )
    made = make_certificates(options, load())
    try:
        settings = Settings(
            host=options.host,
            port=options.port,
            brokers=options.brokers,
            racks=_racks(options.racks, options.brokers),
            advertised=parse_host_port(options.advertised, "--advertised") if options.advertised else None,
            metrics_port=options.metrics_port,
            metrics_token=metrics_token(options),
            allow_anonymous=options.allow_anonymous,
            data_dir=options.data_dir,
            flush=options.flush,
            protocol=default_protocol(users, is_encrypted=options.tls),
            users=users,
            made_certificates=None if made is None else made.directory,
            config=load(defaults=default_configs(users, made)),
            features=parse_features(options.feature),
        )
        _run(log, settings)
    finally:
        if made is not None:
            made.remove()


def _run(log: "LogWriter", settings: "Settings") -> None:
    try:
        from uvloop import run
    except ImportError:  # uvloop does not exist for every platform
        run = asyncio.run
    failures, missing_data = run(_serve(settings, log))
    # The process ends even if nobody reads stderr: the log's thread writes these lines too.
    line = "kohort stopped"
    if failures:
        line = (
            f"kohort: {failures[0]}. Nothing was acknowledged after the failure. Repair the disk and start again: "
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


def notify_service_manager(state: str) -> None:
    """Tell systemd about the service (`Type=notify`): "READY=1" or "STOPPING=1". Source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    import socket

    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


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


def _addresses(node: "Node", settings: "Settings") -> "Iterator[tuple[str, str]]":
    """The part of the ready line about several brokers, several listeners, and the files of this run."""
    if len(node.bound) > 1:
        yield "brokers", ",".join(f"{node_id}@{_text(bound[0])}" for node_id, bound in node.bound.items())
    if any(len(bound) > 1 for bound in node.bound.values()):
        yield "listeners", ",".join(_text(endpoint) for bound in node.bound.values() for endpoint in bound)
    if settings.made_certificates is not None:
        yield "certificates", str(settings.made_certificates)
    if node.control_path is not None:
        yield "control", str(node.control_path)


def _text(endpoint: "Endpoint") -> str:
    return f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"


async def _serve(settings: "Settings", log: "LogWriter") -> tuple[list[str], str | None]:
    """Serve until a signal or a failure; return the reasons of the failure, and what the stop found missing."""
    from kohort.server.heap import keep_freed_memory
    from kohort.server.node import Node

    keep_freed_memory()
    # The flusher thread runs a few lines after each flush, and clients wait for them.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    failures: list[str] = []

    def fail(reason: str) -> None:
        failures.append(reason)
        stopping.set()

    node = Node(settings, loop, on_failure=fail, on_recovery=_recovery_line(), log=log)
    try:
        host, port = await node.start()
        where = "memory" if settings.data_dir is None else str(settings.data_dir)
        metrics = "" if node.metrics_port is None else f" metrics_port={node.metrics_port}"
        more = metrics + "".join(f" {name}={value}" for name, value in _addresses(node, settings))
        print(f"kohort ready host={host} port={port} cluster_id={node.cluster_id} data={where}{more}", flush=True)
        notify_service_manager("READY=1")
        await stopping.wait()
        notify_service_manager("STOPPING=1")
    finally:
        await node.stop()
    return failures, node.missing_data
