"""The allocator of Arrow. It is chosen by the environment, before Arrow is imported."""

import os
from typing import Final

_ARROW: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def use_one_allocator() -> None:
    """
    Let Arrow use the allocator of the C library, unless the environment says otherwise.

    With one allocator Arrow and NumPy reuse each other's freed memory, and all of it can be returned to the system. Arrow's own
    one takes 6 MB for the smallest table.
    """
    for name, value in _ARROW.items():
        os.environ.setdefault(name, value)
