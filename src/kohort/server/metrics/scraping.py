"""The port for metrics and probes of a node, and who may have the metrics."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from kohort.model.errors import ConfigError
from kohort.scrape import Family, ScrapeListener
from kohort.security.http_access import VARIABLE, HttpAccess, is_loopback
from kohort.server.listeners.listener import bind
from kohort.server.settings import Settings

_log: Final = logging.getLogger("kohort.server")


async def listen_for_scrapes(
    settings: Settings, collect: Callable[[], Iterable[Family | None]], not_ready: Callable[[], list[str]]
) -> asyncio.Server:
    """
    Listen. Other arguments: as for `ScrapeListener`.

    Args:
        settings: with a port for metrics.

    Raises:
        ConfigError: the address is not available.
    """
    host, port, token = settings.host, settings.metrics_port or 0, settings.metrics_token
    try:
        listening = bind(host, port)
        is_local = is_loopback(listening.getsockname()[0])
        if not is_local and token is None:
            _log.warning("metrics.denied host=%s hint=%r", host, f"no token is set: start the broker with {VARIABLE}")
        listener = ScrapeListener(collect, not_ready, refuse=HttpAccess(token, is_local=is_local).refusal)
        return await listener.start(sock=listening)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; "
            "choose another address with --host and --metrics-port (--metrics-port 0 takes a free port)"
        ) from error
