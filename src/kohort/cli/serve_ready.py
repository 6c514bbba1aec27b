"""The news that `kohort serve` is ready, for standard output, a file, the service manager."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.broker.cluster import Endpoint
    from kohort.server.node import Node
    from kohort.server.settings import Settings

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def ready_line(node: "Node", settings: "Settings", control_port: int | None = None) -> str:
    """The line for people: what is of one value, and more addresses where there are more."""
    values = ready_values(node, settings, control_port)
    del values["bootstrap"]
    values.pop("control", None)
    if "control_socket" in values:
        values["control"] = values.pop("control_socket")
    brokers, listeners = values.pop("brokers"), values.pop("listeners")
    if len(brokers) > 1:
        values["brokers"] = ",".join(f"{node_id}@{address}" for node_id, address in brokers.items())
    if len(listeners) > len(brokers):
        values["listeners"] = ",".join(listeners)
    return "kohort ready " + " ".join(f"{name}={value}" for name, value in _in_order(values))


def _in_order(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The path of the control socket comes last: it may contain blanks."""
    last = [(name, values.pop(name)) for name in ("certificates", "control") if name in values]
    yield from values.items()
    yield from last


def ready_json(node: "Node", settings: "Settings", control_port: int | None = None) -> bytes:
    """One line of JSON, for programs."""
    import msgspec

    return msgspec.json.encode(ready_values(node, settings, control_port)) + b"\n"


def ready_values(node: "Node", settings: "Settings", control_port: int | None = None) -> dict[str, Any]:
    """
    What programs need to know about a node that has started.

    `bootstrap` has the first listener of every broker, `brokers` the same by id, `listeners` all of them; `control` is the
    address of the control port.
    """
    first = {node_id: bound[0] for node_id, bound in node.bound.items()}
    host, port = next((each.host, each.port) for each in first.values())
    values: dict[str, Any] = {
        "host": host,
        "port": port,
        "bootstrap": ",".join(_text(_WILDCARDS.get(each.host, each.host), each.port) for each in first.values()),
        "cluster_id": node.cluster_id,
        "data": node.location if settings.data_dir is None else str(settings.data_dir),
    }
    if node.metrics_port is not None:
        values["metrics_port"] = node.metrics_port
    if control_port is not None:
        values["control_port"] = control_port
        values["control"] = _text(_WILDCARDS.get(settings.host, settings.host), control_port)
    values["brokers"] = {str(node_id): _address(endpoint) for node_id, endpoint in first.items()}
    values["listeners"] = [_address(endpoint) for bound in node.bound.values() for endpoint in bound]
    if settings.made_certificates is not None:
        values["certificates"] = str(settings.made_certificates)
    if node.control_path is not None:
        values["control_socket"] = str(node.control_path)
    return values


def _address(endpoint: "Endpoint") -> str:
    return _text(endpoint.host, endpoint.port)


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ReadyFile:
    """
    The file of `--ready-file`: it exists while the node is ready.

    Args:
        path: None if there is none. A file of an earlier run is removed at once.

    Raises:
        ConfigError: the file cannot be removed or written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.remove()

    def write(self, content: bytes) -> None:
        """Write the whole file, or none: a reader never sees a part."""
        if self._path is None:
            return
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            part.write_bytes(content)
            part.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise ConfigError(f"the file {self._path} of --ready-file cannot be written: {error.strerror}") from None

    def remove(self) -> None:
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"the file {self._path} of --ready-file cannot be removed: {error.strerror}") from None


def notify_service_manager(state: str) -> None:
    """Tell systemd about the service (`Type=notify`): "READY=1" or "STOPPING=1". Source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    import socket

    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
