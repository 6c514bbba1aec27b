"""Whether the way of a request from the socket to the log and back runs compiled; pyproject.toml lists its modules."""

from importlib.util import find_spec


def is_compiled() -> bool:
    """Whether this is the compiled build (`make compiled`). It does the same, in less time."""
    found = find_spec("kohort.runtime.context")
    return found is not None and found.origin is not None and not found.origin.endswith(".py")
