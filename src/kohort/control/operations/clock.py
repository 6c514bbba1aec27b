"""The operations of the control API over virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from kohort.control.kit import Kit
from kohort.control.web.api import Operation
from kohort.control.web.problems import Problem, invalid
from kohort.server.virtual_time import PendingTimer, VirtualTimeDriver

STEP_SECONDS: Final = 1.0
STEPS: Final = 100
"""Steps of a long advance whose steps are not given."""
STEPS_MAX: Final = 10_000
PAUSE_SECONDS: Final = 0.005
ADVANCE_SECONDS_MAX: Final = 10 * 365 * 86_400.0
TIMERS_SHOWN: Final = 1_000
_SETTLING_TURNS: Final = 3


class ClockView(msgspec.Struct, frozen=True):
    """
    The clock of the brokers.

    Attributes:
        now_ms: milliseconds since 1970: it stamps what brokers write themselves.
        is_virtual: whether it stands still (`kohort serve --virtual-time`).
    """

    now_ms: int
    is_virtual: bool


class TimerView(msgspec.Struct, frozen=True):
    """
    A timer.

    Attributes:
        seconds: until it is due, when it was looked at; below 0 for one that has run late.
        owner: what it belongs to, such as "session billing worker-1".
    """

    seconds: float
    owner: str


class TimerList(msgspec.Struct, frozen=True):
    """The timers that are pending, the first ones at most; `count` counts all."""

    timers: Sequence[TimerView]
    count: int


class Advance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        seconds: of virtual time.
        step: seconds of virtual time between two pauses; 1, or a hundredth of a longer time than 100 s.
        pause: real seconds after each step, in which clients may send heartbeats.
    """

    seconds: float
    step: float | None = None
    pause: float = PAUSE_SECONDS


class Advanced(msgspec.Struct, frozen=True):
    """
    What an advance did.

    Attributes:
        ran: the timers that ran, in their order, the first ones at most; their `seconds` count from the beginning.
        count: all of them.
    """

    now_ms: int
    ran: Sequence[TimerView]
    count: int


def clock_operations(kit: Kit) -> list[Operation]:
    """Virtual time."""
    one_at_a_time = asyncio.Lock()

    def driver() -> VirtualTimeDriver:
        found = kit.node.virtual_time
        if found is None:
            raise Problem(409, "no-virtual-time", "the clock is real: start the broker with --virtual-time")
        return found

    async def look() -> ClockView:
        return ClockView(kit.node.broker.clock.now_ms(), kit.node.virtual_time is not None)

    async def timers() -> TimerList:
        pending = driver().pending()
        now_ms = driver().clock.now_ms()
        return TimerList(_views(pending, now_ms), len(pending))

    async def advance(body: Advance) -> Advanced:
        time = driver()
        if not 0 < body.seconds <= ADVANCE_SECONDS_MAX:
            raise invalid(f"seconds must be more than 0 and at most {ADVANCE_SECONDS_MAX:.0f}; they are {body.seconds}")
        step = max(STEP_SECONDS, body.seconds / STEPS) if body.step is None else body.step
        if step <= 0 or body.seconds / step > STEPS_MAX:
            raise invalid(f"step must be more than 0, and an advance has at most {STEPS_MAX} steps; it is {step}")
        if not 0 <= body.pause <= 1:
            raise invalid(f"pause must be from 0 to 1 s; it is {body.pause}")
        async with one_at_a_time:
            begin_ms = time.clock.now_ms()
            end_ms = begin_ms + max(round(body.seconds * 1_000), 1)
            ran: list[PendingTimer] = []
            while (now_ms := time.clock.now_ms()) < end_ms:
                ran += time.run_to(min(now_ms + max(round(step * 1_000), 1), end_ms))
                await _settle()
                await asyncio.sleep(body.pause)
            return Advanced(time.clock.now_ms(), _views(ran, begin_ms), len(ran))

    async def run_next() -> Advanced:
        time = driver()
        async with one_at_a_time:
            begin_ms = time.clock.now_ms()
            pending = time.pending()
            if not pending:
                raise Problem(409, "no-timer", "no timer is pending")
            ran = time.run_to(pending[0].deadline_ms)
            await _settle()
            return Advanced(time.clock.now_ms(), _views(ran, begin_ms), len(ran))

    return [
        Operation("GET", "/clock", "Show the clock of the brokers.", look, answer=ClockView),
        Operation("GET", "/clock/timers", "List what the brokers wait for.", timers, answer=TimerList, problems=(409,)),
        Operation(
            "POST",
            "/clock/advance",
            "Let virtual time go on, in steps between which clients can send heartbeats.",
            advance,
            Advance,
            Advanced,
            problems=(409,),
        ),
        Operation(
            "POST",
            "/clock/run-next",
            "Let virtual time go on to the next deadline.",
            run_next,
            answer=Advanced,
            problems=(409,),
        ),
    ]


def _views(timers: Sequence[PendingTimer], now_ms: int) -> list[TimerView]:
    return [TimerView((each.deadline_ms - now_ms) / 1_000, each.owner) for each in timers[:TIMERS_SHOWN]]


async def _settle() -> None:
    """Let what the timers began go on: appends at the end of a turn, replies in the next one."""
    for _ in range(_SETTLING_TURNS):
        await asyncio.sleep(0)
