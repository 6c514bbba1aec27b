"""
The way of a request through the code: `python tools/request_way.py [--json] [--list NAME]`.

A node with its store in memory gets the frames of a client without a socket, on the plain build. Counted are a request of its
kind after the first ones, which are read in another way, and what it brings about, up to the next one: calls of Python
functions, files entered, and changes from one room (a package directly below `kohort`) to another. Work of the node beside the
request, such as a second turn of a queue, differs from run to run: the shortest of several requests is reported. `--list NAME`
prints the calls of one way in their order.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.instructions import Client, ways  # noqa: E402
from kohort.broker.configs.definitions import BrokerConfig  # noqa: E402
from kohort.server.node import Node  # noqa: E402
from kohort.server.settings import Settings  # noqa: E402
from kohort.wire.readers import FIRST_READS  # noqa: E402

SOURCE = str(ROOT / "src" / "kohort")
UNCOUNTED = FIRST_READS + 1
"""Requests of a way before the first one that is counted."""
COUNTED = 5
"""Requests of a way that are counted."""
TURNS = 5
"""Turns of the event loop after an answer, in which deferred work is done."""


class Way(NamedTuple):
    """
    The counts of one way.

    Attributes:
        changes: from one room to another.
    """

    name: str
    calls: int
    files: int
    changes: int


def counts(name: str, entered: list[CodeType]) -> Way:
    files = [code.co_filename for code in entered]
    rooms = [file[len(SOURCE) + 1 :].partition("/")[0] for file in files]
    changes = sum(before != after for before, after in pairwise(rooms))
    return Way(name, len(entered), len(set(files)), changes)


async def _walk() -> list[tuple[str, list[CodeType]]]:
    one_partition = dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), "1")
    config = BrokerConfig({"group.initial.rebalance.delay.ms": "0"} | one_partition)
    node = Node(Settings(port=0, config=config), asyncio.get_running_loop())
    await node.start()
    client = Client(node)
    walked: list[tuple[str, list[CodeType]]] = []
    for way in await ways(client):
        shortest: list[CodeType] | None = None
        for number in range(UNCOUNTED + COUNTED):
            entered: list[CodeType] = []

            def note(frame: FrameType, event: str, _argument: Any, entered: list[CodeType] = entered) -> None:
                if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
                    entered.append(frame.f_code)

            for one in way.frames(number):
                sys.setprofile(note if number >= UNCOUNTED else None)
                try:
                    await client.answer(one.data)
                    for _ in range(TURNS):
                        await asyncio.sleep(0)
                finally:
                    sys.setprofile(None)
            if entered and (shortest is None or len(entered) < len(shortest)):
                shortest = entered
        walked.append((way.name, shortest or []))
    await node.stop()
    return walked


def walk() -> list[tuple[str, list[CodeType]]]:
    """The functions that each way enters, in their order."""
    return asyncio.run(_walk())


def _lines(entered: list[CodeType]) -> Iterator[str]:
    for code in entered:
        yield f"{code.co_filename[len(SOURCE) + 1 :]}:{code.co_firstlineno} {code.co_qualname}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--list", metavar="NAME", help="print the calls of the way with this name")
    arguments = parser.parse_args()
    walked = walk()
    if arguments.list:
        found = dict(walked).get(arguments.list)
        if found is None:
            print(
                f"there is no way {arguments.list!r}; there are {', '.join(name for name, _ in walked)}",
                file=sys.stderr,
            )
            return 2
        print(*_lines(found), sep="\n")
        return 0
    found_ways = [counts(name, entered) for name, entered in walked]
    if arguments.json:
        print(json.dumps([way._asdict() for way in found_ways], indent=2))
        return 0
    print(f"{'':36}{'calls':>8}{'files':>8}{'rooms':>8}")
    for way in found_ways:
        print(f"{way.name:36}{way.calls:8,}{way.files:8}{way.changes:8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
