"""The control port of a node: its listener, and everything behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.model.errors import ConfigError
from kohort.security.http_access import HttpAccess, is_loopback
from kohort.server.listeners.listener import bind

if TYPE_CHECKING:
    from kohort.control.kit import Kit
    from kohort.control.web.http import HttpServer
    from kohort.server.node import Node


class ControlServer:
    """
    The control API of a node.

    Attributes:
        port: set by `start`; None before, and without a port.
        kit: set by `start`.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._http: HttpServer | None = None
        self.kit: Kit | None = None
        self.port: int | None = None

    async def start(self, host: str, port: int | None, token: str | None, faults: Path | None = None) -> None:
        """
        Add the faults of a file, and listen.

        Args:
            port: None to listen nowhere, 0 for a free port.

        Raises:
            ConfigError: the address is not available, a token is missing, h11 is not installed, or a fault is wrong.
        """
        try:
            from kohort.control.web.http import HttpServer
        except ImportError:
            raise ConfigError("--control-port and --faults need h11: pip install 'kohort[testing]'") from None
        from kohort.control.kit import Kit
        from kohort.control.operations.every import operations_of
        from kohort.control.web.api import Router

        kit = self.kit = Kit(self._node, asyncio.get_running_loop())
        if faults is not None:
            from kohort.control.requests.fault_file import add_faults

            add_faults(kit, faults)
        if port is None:
            return
        try:
            listening = bind(host, port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port with --control-port "
                "(0 takes a free port)"
            ) from error
        self.port = int(listening.getsockname()[1])
        is_local = is_loopback(listening.getsockname()[0])
        if token is None and not is_local:
            listening.close()
            raise ConfigError(
                f"--control-port on {host} lets everyone who reaches this machine do everything: give --control-token FILE, "
                "or listen on 127.0.0.1"
            )
        router = Router(operations_of(kit))
        self._http = HttpServer(router.handle, HttpAccess(token, is_local=is_local))
        await self._http.start(listening)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
        if self.kit is not None:
            self.kit.close()
