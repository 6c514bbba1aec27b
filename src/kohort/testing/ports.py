"""Free ports, for servers whose port must be known before they start or must stay the same over restarts."""

import socket
from collections import deque
from random import Random

_RANDOM = Random()
_LOWEST, _HIGHEST = 10_000, 32_767
"""Below the range of ephemeral ports: the operating system may give one of those to a client at any moment."""
_given: deque[int] = deque(maxlen=1_000)
"""The ports returned last. They are not returned again soon, because a caller may listen on them only later."""


def free_ports(count: int) -> list[int]:
    """
    Return different ports of 127.0.0.1 without a listener. None of them was returned by the last calls.

    Raises:
        OSError: there are not enough.
    """
    found: list[int] = []
    for port in _RANDOM.sample(range(_LOWEST, _HIGHEST + 1), 1_000 + count):
        if port not in _given and _is_free(port):
            found.append(port)
        if len(found) == count:
            _given.extend(found)
            return found
    raise OSError(f"no {count} ports between {_LOWEST} and {_HIGHEST} are free")


def free_port_range(count: int) -> range:
    """
    Return successive ports of 127.0.0.1 without a listener, for virtual brokers. None of them was returned by the last calls.

    Raises:
        OSError: there are not enough.
    """
    for first in _RANDOM.sample(range(_LOWEST, _HIGHEST + 2 - count), 1_000):
        ports = range(first, first + count)
        if not any(port in _given for port in ports) and all(map(_is_free, ports)):
            _given.extend(ports)
            return ports
    raise OSError(f"no {count} successive ports between {_LOWEST} and {_HIGHEST} are free")


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
