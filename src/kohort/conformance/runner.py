"""
Tells one story to one side.

Steps follow each other; each waits for its answer unless it is parked. Before a step that follows a parked one nothing happens
for `SETTLE_S`, so that what a step sets off is over before the next one begins; in which step a parked request was answered
is part of the outcome.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from kohort.conformance.canon import Names, canonical_response
from kohort.conformance.connection import Arrival, Connection, Expected
from kohort.conformance.outcome import Outcome, StepOutcome
from kohort.conformance.requests import request_frame
from kohort.conformance.script import Step
from kohort.conformance.story import Story

SETTLE_S = 0.04
NEVER = "never"


class Telling:
    """One story being told."""

    def __init__(self, story: Story, address: tuple[str, int], prefix: str, given: Mapping[str, Any]) -> None:
        """
        Args:
            prefix: what every name of the story begins with on this side.
            given: values that the side provides, such as the ids of the story's topics.
        """
        self.names = Names(prefix)
        self._story = story
        self._address = address
        self._values: dict[str, Any] = {**given, **story.values}
        self._connections: dict[str, Connection] = {}
        self._sent: dict[str, tuple[Step, Expected, float]] = {}
        self._during: dict[str, str] = {}
        self._arrivals: list[str] = []
        self._now = ""
        self._outcomes: dict[str, StepOutcome] = {}
        for key, value in given.items():
            if key.endswith(".id"):
                self.names.name("topic", value)

    async def tell(self) -> Outcome:
        """
        Raises:
            ScriptError: the story asks for what cannot be sent.
            OSError: the side takes no connection.
        """
        try:
            for step in self._story.steps:
                await self._do(step)
            await asyncio.sleep(0)
            self._leave_unanswered()
        finally:
            for connection in self._connections.values():
                connection.close()
        return Outcome(steps={step.label: self._outcomes[step.label] for step in self._story.steps})

    async def _do(self, step: Step) -> None:
        if any(not expected.answered.done() for _, expected, _ in self._sent.values()):
            await asyncio.sleep(SETTLE_S)
        if not step.receive:  # to wait for answers sets nothing off
            self._now = step.label
        if step.pause_ms:
            await asyncio.sleep(step.pause_ms / 1000)
        if step.close:
            (await self._connection(step.on)).close()
        outcome = StepOutcome()
        if step.send is not None or step.frame is not None:
            outcome = await self._ask(step)
        if step.receive:
            outcome = StepOutcome(order=await self._receive(step))
        self._outcomes.setdefault(step.label, outcome)

    async def _ask(self, step: Step) -> StepOutcome:
        connection = await self._connection(step.on)
        version = self._story.version(step) if step.send is not None else 0
        expected = connection.send(
            step.api,
            version,
            lambda correlation_id: request_frame(step, version, correlation_id, self._lookup),
            owed=not step.unanswered,
        )
        if step.unanswered:
            return StepOutcome(api=step.send or "", version=version)
        label = step.label
        self._sent[label] = (step, expected, asyncio.get_running_loop().time())
        expected.answered.add_done_callback(lambda _: self._note_arrival(label))
        if step.parked:
            return StepOutcome(during=NEVER)
        await asyncio.wait((expected.answered,), timeout=step.wait_ms / 1000)
        if expected.answered.done():
            return self._take(label)
        self._during[label] = NEVER
        return StepOutcome(api=step.send or "", version=version, trouble="silent")

    def _note_arrival(self, label: str) -> None:
        self._during.setdefault(label, self._now)
        self._arrivals.append(label)

    async def _receive(self, step: Step) -> list[str]:
        """The awaited steps that are answered, in order of arrival if that counts."""
        waiting = [self._sent[label][1].answered for label in step.receive]
        await asyncio.wait(waiting, timeout=step.wait_ms / 1000)
        await asyncio.sleep(0)
        order = [label for label in self._arrivals if label in step.receive]
        order = order if step.in_order else sorted(order, key=int)
        for label in sorted(order, key=int):
            self._outcomes[label] = self._take(label)
        return order

    def _leave_unanswered(self) -> None:
        """What was parked and came without being received, and what never came."""
        for label, (step, expected, _) in self._sent.items():
            if step.parked and self._outcomes[label].during == NEVER:
                if expected.answered.done():
                    self._outcomes[label] = self._take(label)
                else:
                    version = self._story.version(step) if step.send else 0
                    self._outcomes[label] = StepOutcome(api=step.send or "", version=version, during=NEVER)

    def _take(self, label: str) -> StepOutcome:
        step, expected, sent_s = self._sent[label]
        arrival = expected.answered.result()
        during = self._during.get(label, label)
        if arrival.response is not None:
            self._keep(step, arrival.response)
        return StepOutcome(
            api=step.send or "",
            version=arrival.version,
            answer=self._answer(step, arrival),
            trouble=arrival.trouble or "",
            during=during if during != label else "",
            elapsed_ms=round(1000 * (arrival.at_s - sent_s)),
        )

    def _answer(self, step: Step, arrival: Arrival) -> dict[str, Any] | None:
        if arrival.response is None or step.api is None:
            return None
        answer = canonical_response(step.api, arrival.version, arrival.response, self.names)
        for path in step.ignore:
            _forget(answer, path.split("."))
        return answer

    def _keep(self, step: Step, response: Any) -> None:
        for name, path in step.keep.items():
            self._values[name] = _found(response, path)

    async def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            self._connections[name] = await Connection.open(*self._address)
        return self._connections[name]

    def _lookup(self, name: str) -> Any:
        if name.startswith("@"):
            return self.names.prefix + name[1:]
        key = name[1:]
        if key not in self._values and not any(key in step.keep for step in self._story.steps):
            raise KeyError(key)
        value = self._values.get(key, "")
        return self._lookup(value) if isinstance(value, str) and value.startswith("@") else value


def _found(response: Any, path: str) -> Any:
    """The value at a path such as `topics.0.topic_id`; "" where the answer has none."""
    found = response
    for part in path.split("."):
        try:
            found = found[int(part)] if part.isdigit() else getattr(found, part)
        except (IndexError, AttributeError, TypeError):
            return ""
    return found


def _forget(answer: Any, path: list[str]) -> None:
    """Put an asterisk in the place of a field; `*` stands for all elements of a list."""
    first, *rest = path
    places = range(len(answer)) if first == "*" else [int(first) if first.isdigit() else first]
    for place in places:
        if (isinstance(answer, dict) and place not in answer) or (
            isinstance(answer, list) and int(place) >= len(answer)
        ):
            continue  # this version lacks the field, or the list is shorter
        if rest and answer[place] is not None:
            _forget(answer[place], rest)
        else:
            answer[place] = "*"
