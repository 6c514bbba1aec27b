"""Which build is installed: compiled by mypyc, or plain Python. `pyproject.toml` lists the compiled modules."""

from importlib.util import find_spec


def is_compiled() -> bool:
    """Tell whether this is the compiled build. Both builds behave the same; the compiled one is faster."""
    found = find_spec("kohort.runtime.context")
    return found is not None and found.origin is not None and not found.origin.endswith(".py")
