"""Collections of garbage hold the event loop: while state grows, none of them visits many objects."""

import subprocess
import sys
from textwrap import dedent

VISITED_MAX = 35_000
PROGRAM = dedent("""
    import gc
    from kohort.server.node import configure_garbage_collector

    visited = []

    def on_collection(phase, found):
        if phase == "start":
            visited.append(sum(len(gc.get_objects(it)) for it in range(found["generation"] + 1)))

    configure_garbage_collector()
    gc.callbacks.append(on_collection)
    state = [[number] for number in range(400_000)]
    gc.callbacks.remove(on_collection)
    print(len(visited), max(visited))
""")


def test_state_that_grows_is_never_visited_as_a_whole() -> None:
    """In a process of its own: the collector is that of the process, and so are the objects that it visits."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    collections, visited = map(int, done.stdout.split())
    assert collections >= 20
    assert visited <= VISITED_MAX
