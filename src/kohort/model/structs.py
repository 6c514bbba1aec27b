"""
msgspec, or where it is missing, as on executors of a Spark cluster, what the readers of logs need of it.

Users write `from kohort.model.structs import msgspec`.
"""

from typing import TYPE_CHECKING

__all__ = ["msgspec"]

if TYPE_CHECKING:
    import msgspec
else:
    try:
        import msgspec
    except ImportError:
        from kohort.model import plain_structs as msgspec
