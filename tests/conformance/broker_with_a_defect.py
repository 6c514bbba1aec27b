"""
`kohort` with one defect, made on purpose; the first argument says which.

- `code`: a heartbeat during a rebalance is answered with ILLEGAL_GENERATION.
- `early`: the first members of a group are answered at once, without the delay in which others may come.
- `late`: a follower gets its assignment a while after the leader has brought it.
- `mortal`: it does not survive the heartbeat of a member called nobody.
"""

import asyncio
import os
import sys
from collections.abc import Callable

from kohort.cli.main import main
from kohort.group.classic import heartbeat
from kohort.group.classic.apis import ClassicApis
from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.groups import Group
from kohort.machine.shard import Result
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

LATE_S = 0.15


def answer_a_wrong_code() -> None:
    wrong = m.HeartbeatResponse(error_code=int(ErrorCode.ILLEGAL_GENERATION))
    setattr(heartbeat, "_REBALANCING", Result(response=wrong))  # noqa: B010


def answer_early() -> None:
    # A method that is replaced would not be seen by compiled code.
    sys.argv += ["--set", "group.initial.rebalance.delay.ms=1"]


def answer_late() -> None:
    sync = ClassicApis.sync_group

    def after_a_while(
        apis: ClassicApis,
        request: m.SyncGroupRequest,
        context: RequestContext,
        reply: Callable[[m.SyncGroupResponse], None],
    ) -> m.SyncGroupResponse | None:
        return sync(apis, request, context, reply if request.assignments else _held(reply))

    setattr(ClassicApis, "sync_group", after_a_while)  # noqa: B010


def _held(reply: Callable[[m.SyncGroupResponse], None]) -> Callable[[m.SyncGroupResponse], None]:
    def later(response: m.SyncGroupResponse) -> None:
        asyncio.get_running_loop().call_later(LATE_S, reply, response)

    return later


def die() -> None:
    check = heartbeat._check

    def survive(
        group: Group | None, member_id: str, group_instance_id: str | None, generation: int
    ) -> tuple[ClassicGroup, ClassicMember]:
        if member_id == "nobody":
            os._exit(1)
        return check(group, member_id, group_instance_id, generation)

    setattr(heartbeat, "_check", survive)  # noqa: B010


DEFECTS = {"code": answer_a_wrong_code, "early": answer_early, "late": answer_late, "mortal": die}

if __name__ == "__main__":
    DEFECTS[sys.argv[1]]()
    main(sys.argv[2:])
