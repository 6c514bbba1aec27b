"""`kohort pipeline export`: an endpoint for Prometheus."""

import os
from pathlib import Path

import typer

from kohort.cli.pipeline.options import CommandOptions
from kohort.cli.pipeline.run_command import connection_options, stop_signal
from kohort.model.errors import ConfigError


def serve_metrics(
    options: CommandOptions,
    *,
    host: str,
    port: int,
    interval_s: float,
    names: str,
    cluster_name: str | None,
    token_file: Path | None = None,
) -> None:
    """
    Poll a source and serve the metrics, until SIGINT or SIGTERM.

    Raises:
        ConfigError: the source cannot be followed, a set of names is unknown, no broker answers the first poll, or the address
            is in use; or the token cannot be used.
    """
    from kohort.pipeline.exporter.endpoint import Endpoint
    from kohort.pipeline.exporter.exporter import Exporter
    from kohort.pipeline.sources.options import connecting
    from kohort.security.http_access import read_token

    token = read_token(token_file, os.environ)
    check_source(options.source, is_needed=not options.checkpoints)
    schemes = _schemes(names)
    security = connecting(connection_options(options.config))
    exporter = Exporter(options.source, security, cluster_name=cluster_name, schemes=schemes, checkpoints=options.named)
    first = exporter.poll()
    if not first.polled_ms:
        raise ConfigError(first.problems[-1])
    endpoint = Endpoint(exporter, host, port, interval_s=interval_s, token=token)
    with stop_signal() as stopped:
        endpoint.start()
        typer.echo(f"Metrics of {options.source}: http://{host}:{endpoint.port}/metrics", err=True)
        stopped.wait(interval_s)
        exporter.run(stopped, interval_s)
    endpoint.stop()
    exporter.close()


def check_source(source: str, *, is_needed: bool) -> None:
    from kohort.pipeline.decode.storage import is_remote
    from kohort.pipeline.jobs.published import is_published
    from kohort.pipeline.jobs.reading import coordinator_log_bytes
    from kohort.pipeline.sources.extent import log_bytes
    from kohort.pipeline.sources.live import is_live
    from kohort.pipeline.sources.postgres.address import is_database
    from kohort.pipeline.sources.unwritten import META_PROPERTIES

    if is_live(source):
        return
    if is_database(source):
        # It may have no group yet.
        log_bytes(source, None)
        return
    if is_remote(source) or is_published(source):
        raise ConfigError(
            f"{source} does not grow record by record; export follows kafka://HOST:PORT, a store (postgresql://...) or the data"
            " directory of a broker. For published tables use status --fail-on"
        )
    if is_needed and not (Path(source) / META_PROPERTIES).is_file():
        # Not the data directory of a broker that has no group yet, but maybe copied logs.
        coordinator_log_bytes(source)


def _schemes(names: str) -> list[str]:
    from kohort.pipeline.exporter.definitions import SCHEMES

    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in SCHEMES:
            raise ConfigError(f"--names {name!r} is no set of names; they are {', '.join(SCHEMES[1:])}")
    return chosen
