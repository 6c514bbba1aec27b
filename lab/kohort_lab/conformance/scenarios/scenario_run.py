"""
Runs one scenario on one broker.

Steps follow each other. A step waits for its answer unless it is parked. The step during which a parked request is answered is
part of the outcome, so the effects of a step have to be over before the next one begins. No delay guarantees that; a probe
does: a heartbeat of an unknown member of the same group, over a connection of its own. A broker reads requests in their order
and answers those of a group in their order, so it has read all requests before the probe, and has answered all requests that
they release, when it answers the probe. The network threads of Apache Kafka are not quite as strict, so `SETTLE_S` is waited
as well.

The lateness of a step is the time by which the step and the probe before it exceed their planned duration. Of a request that
may wait for its answer, only the time until it is sent counts. `kohort_lab.conformance.lateness` says which differences the
lateness excuses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort_lab.conformance.brokers.connection import CLOSED, Arrival, Expected, TargetConnection
from kohort_lab.conformance.canon import Names, canonical_response
from kohort_lab.conformance.compare import WAITING
from kohort_lab.conformance.outcome import Outcome, StepOutcome
from kohort_lab.conformance.scenarios.requests import request_frame, resolve
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.script import ScriptError, Step

SETTLE_S = 0.04
AGAIN_S = 0.03
"""The time between two requests of a step that is repeated."""
IF_PRESENT = "?"
"""At the end of a path of `keep`: a field that is null or absent leaves the value as it was."""
EPOCH = ".epoch"
"""At the end of a name, behind a member id: the epoch, or the generation, that the member was told last."""
NEVER = "never"
SILENT = "silent"
NOBODY = "kc-probe"
"""Client id and member id of probes; a member of no group."""

_PROBE_TIMEOUT_S = 20.0
_SILENCES_MAX = 2
_IMPATIENT_S = 3.0
"""Timeout of each answer after `_SILENCES_MAX` requests of a scenario were not answered."""

Restart: TypeAlias = Callable[[], Awaitable[None]]
"""Restarts the broker; returns when it answers."""

Lateness: TypeAlias = Mapping[str, int]
"""Milliseconds by which steps were late, by label."""


class ScenarioRun:
    """
    Attributes:
        lateness_ms: by label, the milliseconds by which a step exceeded its planned duration.
    """

    def __init__(
        self,
        scenario: Scenario,
        address: tuple[str, int],
        prefix: str,
        given: Mapping[str, Any],
        restart: Restart | None = None,
    ) -> None:
        """
        Args:
            prefix: of every name of the scenario on this side.
            given: values that the side provides, such as the ids of the scenario's topics.
            restart: needed if a step restarts the broker.
        """
        self.names = Names(prefix)
        self._scenario = scenario
        self.lateness_ms: dict[str, int] = {}
        self._silences = 0
        self._address = address
        self._restart = restart
        self._group_id = ""
        self._probe_connection: TargetConnection | None = None
        self._values: dict[str, Any] = {**given, **scenario.values}
        self._connections: dict[str, TargetConnection] = {}
        self._sent: dict[str, tuple[Step, Expected, float]] = {}
        self._during: dict[str, str] = {}
        self._arrivals: list[str] = []
        self._now = ""
        self._outcomes: dict[str, StepOutcome] = {}
        for key, value in given.items():
            if key.endswith(".id"):
                self.names.name("topic", value)

    async def run(self) -> Outcome:
        """
        Raises:
            ScriptError: a request cannot be encoded.
            OSError: the broker accepts no connection.
        """
        try:
            for step in self._scenario.steps:
                await self._do(step)
            await asyncio.sleep(0)
            self._leave_unanswered()
        finally:
            self._close_all()
        return Outcome(steps={step.label: self._outcomes[step.label] for step in self._scenario.steps})

    async def _do(self, step: Step) -> None:
        if any(self._is_awaited(label) for label in self._sent):
            self._note_lateness(step, await self._settle())
        self._now = step.label
        began_s = asyncio.get_running_loop().time()
        if step.pause_ms:
            await asyncio.sleep(step.pause_ms / 1000)
            self._note_lateness(step, _elapsed_ms(began_s) - step.pause_ms)
        if step.close:
            (await self._connection(step.on)).close()
        if step.restart:
            self._note_lateness(step, await self._restart_broker())
        outcome = StepOutcome()
        if step.send is not None or step.frame is not None:
            outcome = await self._ask(step)
        if step.receive:
            outcome = StepOutcome(order=await self._receive(step))
        self._outcomes.setdefault(step.label, outcome)
        if _is_prompt(step) and outcome.trouble != SILENT:
            self._note_lateness(step, _elapsed_ms(began_s) - step.pause_ms)

    def _is_awaited(self, label: str) -> bool:
        """
        Whether an answer is outstanding, or not noted yet: it is noted one pass of the event loop after it arrived. A request
            whose connection was closed is not awaited.
        """
        if label in self._arrivals:
            return False
        answered = self._sent[label][1].answered
        return not answered.done() or answered.result().trouble != CLOSED

    async def _settle(self) -> int:
        """Wait until the effects of all requests are over. Return the milliseconds by which that took too long."""
        began_s = asyncio.get_running_loop().time()
        if self._probe_connection is None or self._probe_connection.is_closed:
            self._probe_connection = await TargetConnection.open(*self._address)
        request = m.HeartbeatRequest(group_id=self._group_id, generation_id=-1, member_id=NOBODY)
        encode = request_encoder(ApiKey.HEARTBEAT, 0)
        probe = self._probe_connection.send(
            ApiKey.HEARTBEAT, 0, lambda correlation_id: encode(correlation_id, NOBODY, request)
        )
        await self._wait((probe.answered,), _PROBE_TIMEOUT_S)
        await asyncio.sleep(SETTLE_S)
        return _elapsed_ms(began_s) - round(1000 * SETTLE_S)

    async def _wait(self, answers: Iterable[asyncio.Future[Arrival]], timeout_s: float) -> None:
        """Wait until all are answered, or until the timeout."""
        if self._silences >= _SILENCES_MAX:
            timeout_s = min(timeout_s, _IMPATIENT_S)
        _, pending = await asyncio.wait(list(answers), timeout=timeout_s)
        self._silences += bool(pending)

    async def _restart_broker(self) -> int:
        """
        Restart the broker.

        Returns:
            The milliseconds until it had closed the scenario's connections. Its timers ran on so long.
        """
        if self._restart is None:
            raise ScriptError(f"{self._scenario.name}: there is no way to restart the broker")
        began_s = asyncio.get_running_loop().time()
        await self._restart()
        self._close_all()
        ended_s = max((connection.closed_s for connection in self._connections.values()), default=began_s)
        self._connections.clear()
        return round(1000 * (ended_s - began_s))

    def _close_all(self) -> None:
        for connection in filter(None, (*self._connections.values(), self._probe_connection)):
            connection.close()

    def _note_lateness(self, step: Step, late_ms: int) -> None:
        self.lateness_ms[step.label] = max(self.lateness_ms.get(step.label, 0), late_ms)

    async def _ask(self, step: Step) -> StepOutcome:
        began_s = asyncio.get_running_loop().time()
        expected = await self._send(step)
        self._note_lateness(step, _elapsed_ms(began_s))
        if step.unanswered:
            return StepOutcome(api=step.send or "", version=expected.version)
        if step.parked:
            return StepOutcome(during=NEVER)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + step.wait_ms / 1000
        await self._wait((expected.answered,), step.wait_ms / 1000)
        while self._is_repeated(step, expected) and loop.time() < deadline_s:
            await asyncio.sleep(AGAIN_S)
            expected = await self._send(step)
            await self._wait((expected.answered,), step.wait_ms / 1000)
        if expected.answered.done():
            return self._take(step.label)
        self._during[step.label] = NEVER
        return StepOutcome(api=step.send or "", version=expected.version, trouble=SILENT)

    def _is_repeated(self, step: Step, expected: Expected) -> bool:
        """Whether the answer has a value because of which the request is sent again."""
        if not step.again_while or not expected.answered.done():
            return False
        response = expected.answered.result().response
        return response is not None and any(
            value in [resolve(each, self._lookup) for each in values]
            for path, values in step.again_while.items()
            for value in all_found(response, path.split("."))
        )

    async def _send(self, step: Step) -> Expected:
        connection = await self._connection(step.on)
        version = self._scenario.version(step) if step.send is not None else 0
        expected = connection.send(
            step.api,
            version,
            lambda correlation_id: request_frame(step, version, correlation_id, self._lookup),
            owed=not step.unanswered,
        )
        self._group_id = self._text_of(step, "group_id") or self._group_id
        if not step.unanswered:
            label = step.label
            self._sent[label] = (step, expected, asyncio.get_running_loop().time())
            expected.answered.add_done_callback(lambda _: self._note_arrival(label))
        return expected

    def _note_arrival(self, label: str) -> None:
        self._during.setdefault(label, self._now)
        self._arrivals.append(label)

    async def _receive(self, step: Step) -> list[str]:
        """Return the awaited steps that are answered, in order of arrival if the step says that it counts."""
        waiting = [self._sent[label][1].answered for label in step.receive]
        await self._wait(waiting, step.wait_ms / 1000)
        await asyncio.sleep(0)
        order = [label for label in self._arrivals if label in step.receive]
        order = order if step.in_order else sorted(order, key=int)
        for label in sorted(order, key=int):
            self._outcomes[label] = self._take(label)
        return order

    def _leave_unanswered(self) -> None:
        """Add the outcomes of parked requests that no step received, answered or not."""
        for label, (step, expected, _) in self._sent.items():
            if step.parked and self._outcomes[label].during == NEVER:
                if expected.answered.done():
                    self._outcomes[label] = self._take(label)
                else:
                    version = self._scenario.version(step) if step.send else 0
                    self._outcomes[label] = StepOutcome(api=step.send or "", version=version, during=NEVER)

    def _take(self, label: str) -> StepOutcome:
        step, expected, sent_s = self._sent[label]
        arrival = expected.answered.result()
        during = self._during.get(label, label)
        if arrival.response is not None:
            self._keep(step, arrival.response)
            self._note_epoch(arrival.response)
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
            found = _found(response, path.removesuffix(IF_PRESENT))
            if not path.endswith(IF_PRESENT) or found not in ("", None):
                self._values[name] = found

    def _note_epoch(self, response: Any) -> None:
        """Note the epoch that a member is told by the answer to its heartbeat, or its generation by that to its JoinGroup."""
        epoch = _found(response, "member_epoch") or _found(response, "generation_id")
        if epoch and epoch > 0 and not response.error_code:
            self._values[f"{response.member_id}{EPOCH}"] = epoch

    def _text_of(self, step: Step, field: str) -> str:
        """A text of a step's request, such as the group id; empty if it has none."""
        text = step.fields.get(field)
        if not isinstance(text, str):
            return ""
        return str(self._lookup(text)) if text[:1] in ("$", "@") else text

    async def _connection(self, name: str) -> TargetConnection:
        if name not in self._connections:
            self._connections[name] = await TargetConnection.open(*self._address)
        return self._connections[name]

    def _lookup(self, name: str) -> Any:
        if name.startswith("@"):
            return self.names.prefix + name[1:]
        key = name[1:]
        if key.endswith(EPOCH):
            key = self._member(key.removesuffix(EPOCH)) + EPOCH
        if key not in self._values and not any(self._may_give(step, key) for step in self._scenario.steps):
            raise KeyError(key)
        value = self._values.get(key, "")
        refers = ("@", "$") if key in self._scenario.values else ("@",)
        return self._lookup(value) if isinstance(value, str) and value.startswith(refers) else value

    def _member(self, name: str) -> str:
        """A member id, from itself or from the name of a value that is one."""
        return str(self._lookup("$" + name)) if name in self._values else name

    def _may_give(self, step: Step, key: str) -> bool:
        """Whether the answer to a step can give a value."""
        if not key.endswith(EPOCH):
            return key in step.keep
        return key.removesuffix(EPOCH) in (*step.keep, self._text_of(step, "member_id"))


def _elapsed_ms(began_s: float) -> int:
    return round(1000 * (asyncio.get_running_loop().time() - began_s))


def _is_prompt(step: Step) -> bool:
    """Whether the planned duration of a step is its pause."""
    return not step.receive and not step.restart and not step.again_while and step.send not in WAITING


def all_found(response: Any, path: list[str]) -> Iterator[Any]:
    """The values at a path. In the path, `*` stands for all elements of a list."""
    if not path:
        yield response
    elif path[0] == "*":
        for each in response or ():
            yield from all_found(each, path[1:])
    else:
        yield from all_found(_found(response, path[0]), path[1:])


def _found(response: Any, path: str) -> Any:
    """The value at a path such as `topics.0.topic_id`; "" if the answer has no such field."""
    found = response
    for part in path.split("."):
        try:
            found = found[int(part)] if part.isdigit() else getattr(found, part)
        except (IndexError, AttributeError, TypeError):
            return ""
    return found


def _forget(answer: Any, path: list[str]) -> None:
    """Replace a field by an asterisk. In the path, `*` stands for all elements of a list."""
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
