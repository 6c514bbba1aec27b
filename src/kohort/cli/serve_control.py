"""The options of `kohort serve` for the testing kit's control port."""

import argparse
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kohort.model.numbers import is_port

if TYPE_CHECKING:
    from kohort.control.server import ControlServer
    from kohort.server.node import Node


class ControlOptions(NamedTuple):
    """The options of the command line about the control port."""

    port: int | None
    token: str | None
    faults: Path | None = None

    async def start(self, node: "Node", host: str) -> "ControlServer":
        """Serve the control API of a node. Raises: ConfigError: as `ControlServer.start`."""
        from kohort.control.server import ControlServer

        server = ControlServer(node)
        await server.start(host, self.port, self.token, self.faults)
        return server


def add_control_options(options: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = options.add_argument_group("testing kit")
    group.add_argument(
        "--control-port",
        type=_port,
        metavar="PORT",
        help="serve the control API on this port: faults, holds and waits for tests of clients; 0 picks a free port "
        "(default: none; 0 with --for-tests on a loopback address, if kohort[testing] is installed)",
    )
    group.add_argument(
        "--control-token-file",
        type=Path,
        metavar="FILE",
        help="the token that users of the control port show; the environment variable KOHORT_CONTROL_TOKEN has it, too. "
        "Needed if --host is not on loopback",
    )
    group.add_argument(
        "--virtual-time",
        action="store_true",
        help="let the clock of the brokers stand still until POST /clock/advance lets it go on: sessions, transactions and "
        "retention run out at the word of a test",
    )
    group.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        help="faults that are there from the start: TOML with a table [[faults]] for each, or JSON",
    )


def _port(text: str) -> int:
    if not is_port(text, 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return int(text)


def control_of(options: argparse.Namespace, environment: Mapping[str, str]) -> ControlOptions | None:
    """The options as values; None without a control port. Raises: ConfigError: the token cannot be read."""
    from kohort.security.http_access import CONTROL_VARIABLE, is_loopback, read_token

    port = options.control_port
    if port is None and options.for_tests and is_loopback(options.host) and find_spec("h11") is not None:
        port = 0
    if port is None and options.faults is None:
        return None
    token = read_token(options.control_token_file, environment, CONTROL_VARIABLE)
    return ControlOptions(port, token, options.faults)
