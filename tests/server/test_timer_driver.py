"""When timers run: never early, and not before what has arrived is read if the loop was held up."""

import socket

import pytest
import uvloop

from kohort.server.timer_driver import STALL_MS, TimerDriver
from kohort.testing.clock import ManualClock


def story(late_ms: int) -> list[str]:
    """A member's time was up so long ago, while its heartbeat has arrived and was not read yet."""
    told: list[str] = []
    loop = uvloop.new_event_loop()
    ours, theirs = socket.socketpair()
    clock = ManualClock(1_000_000)
    alarm = TimerDriver(loop, clock)

    def read() -> None:
        loop.remove_reader(ours)
        told.append("heartbeat")

    def expire() -> None:
        told.append("expired")
        loop.call_later(0.001, loop.stop)

    with ours, theirs:
        theirs.send(b"heartbeat")
        loop.add_reader(ours, read)
        alarm.wheel.arm(clock.now_ms(), expire)
        clock.set(clock.now_ms() + late_ms)
        loop.run_forever()
        alarm.close()
        loop.close()
    return told


@pytest.mark.parametrize("late_ms", [STALL_MS, 60_000])
def test_after_the_loop_was_held_up_what_has_arrived_is_read_first(late_ms: int) -> None:
    assert story(late_ms) == ["heartbeat", "expired"]


def test_who_is_a_little_late_does_not_wait() -> None:
    assert story(1)[0] == "expired"
