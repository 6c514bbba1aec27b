"""`kohort`, but for one error code that is changed on purpose: who is to join again is told that its generation is illegal."""

import sys

from kohort.cli.main import main
from kohort.group.classic import heartbeat
from kohort.machine.shard import Result
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

if __name__ == "__main__":
    wrong = m.HeartbeatResponse(error_code=int(ErrorCode.ILLEGAL_GENERATION))
    setattr(heartbeat, "_REBALANCING", Result(response=wrong))  # noqa: B010
    main(sys.argv[1:])
