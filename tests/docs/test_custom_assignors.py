"""The assignor of docs/howto/custom-assignors.md works as it is printed."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

from kohort.group.assignors.checking import CheckedAssignor
from kohort.group.assignors.specs import GroupSpec, MemberSpec
from tests.group.assignors.groups import assign

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "custom-assignors.md"
TOPIC = UUID(int=1)


class Topics:
    """One topic of four partitions, each with a replica in another rack."""

    def partition_count(self, topic_id: UUID, /) -> int:
        return 4 if topic_id == TOPIC else -1

    def racks(self, topic_id: UUID, partition: int, /) -> frozenset[str]:
        return frozenset({f"rack-{partition}"})


def test_the_assignor() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    members = {f"m{rack}": MemberSpec(frozenset({TOPIC}), rack_id=f"rack-{rack}") for rack in (3, 2, 1, 0)}
    target = assign(CheckedAssignor(names["NearbyAssignor"]()), GroupSpec(members, True), Topics())
    assert target == {f"m{rack}": {TOPIC: (rack,)} for rack in range(4)}
