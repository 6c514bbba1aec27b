"""Ports for servers whose port must be known before they start, or that come back at the same one."""

import socket
from collections import deque
from random import Random

_RANDOM = Random()  # ports, not secrets
_LOWEST, _HIGHEST = 10_000, 32_767
"""Below those that the operating system gives to clients: a client that asks for one may get it in between."""
_given: deque[int] = deque(maxlen=1_000)
"""The latest ones; who got them may ask for more before listening on the first."""


def free_ports(count: int) -> list[int]:
    """
    Ports of 127.0.0.1 that nobody listens on, each a different one, also from those of the last calls.

    Raises:
        OSError: there are none.
    """
    found: list[int] = []
    for port in _RANDOM.sample(range(_LOWEST, _HIGHEST + 1), 1_000 + count):
        if port not in _given and _is_free(port):
            found.append(port)
        if len(found) == count:
            _given.extend(found)
            return found
    raise OSError(f"no {count} ports between {_LOWEST} and {_HIGHEST} are free")


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
