"""`kohort serve`: one broker in the foreground."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from kohort.model.errors import ConfigError


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one and prints it.")
    ] = 9092,
    advertised: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="What clients are told to connect to, if that differs.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the logs are kept, in Apache Kafka's own layout; created if it is not there."),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep everything in memory; nothing survives the end.")
    ] = False,
    flush: Annotated[
        str,
        typer.Option(
            metavar="commit|os",
            help="commit: acknowledged means on the disk. os: acknowledged means handed to the operating system, which is how "
            "Apache Kafka runs by default; a machine that loses power may lose it.",
        ),
    ] = "commit",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker configuration by Kafka's name; may be given often."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A file of broker configurations: TOML, or Kafka's server.properties.")
    ] = None,
    log_level: Annotated[
        str, typer.Option(metavar="debug|info|warning|error", help="What is logged on stderr.")
    ] = "info",
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How it is logged.")] = "text",
) -> None:
    """
    Run a broker until it is told to stop (SIGTERM, or Ctrl-C).

    One line on stdout says when it is ready, and where: kohort ready host=127.0.0.1 port=9092 ...

    Broker configurations come from --config, then from the environment (KOHORT_SET_NUM_PARTITIONS=3 sets
    num.partitions), then from --set; the later one wins. docs/configuration.md lists those that have an effect.

    Examples:

      kohort serve --data-dir ./data

      kohort serve --memory --port 0 --set num.partitions=3 --set group.initial.rebalance.delay.ms=0
    """
    if flush not in ("commit", "os"):
        raise ConfigError(f"--flush is commit or os, not {flush!r}")
    if log_format not in ("text", "json"):
        raise ConfigError(f"--log-format is text or json, not {log_format!r}")
    if log_level not in ("debug", "info", "warning", "error"):
        raise ConfigError(f"--log-level is debug, info, warning or error, not {log_level!r}")
    if memory and data_dir is not None:
        raise ConfigError("--memory keeps nothing on the disk: give either --memory or --data-dir")
    if not memory and data_dir is None:
        raise ConfigError("where are the logs to be kept? Give --data-dir DIR, or --memory to keep nothing")

    from kohort.broker.configs import BrokerConfig
    from kohort.server.logs import configure_logs
    from kohort.server.settings import Settings, parse_host_port

    configure_logs(log_level, log_format)
    broker_config = BrokerConfig.load(sets=settings or (), file=config, environment=os.environ)
    _run(
        Settings(
            host=host,
            port=port,
            advertised=parse_host_port(advertised, "--advertised") if advertised else None,
            data_dir=data_dir,
            flush="os" if flush == "os" else "commit",
            config=broker_config,
        )
    )


def _run(settings: object) -> None:
    try:
        from uvloop import run
    except ImportError:  # not to be had everywhere
        run = asyncio.run
    run(_serve(settings))


async def _serve(settings: object) -> None:
    from kohort.server.node import Node
    from kohort.server.settings import Settings

    assert isinstance(settings, Settings)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = Node(settings, loop)
    try:
        host, port = await node.start()
        where = "memory" if settings.data_dir is None else str(settings.data_dir)
        print(f"kohort ready host={host} port={port} cluster_id={node.cluster_id} data={where}", flush=True)
        await stopping.wait()
    finally:
        await node.stop()
    print("kohort stopped", file=sys.stderr)
