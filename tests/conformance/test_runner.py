"""Outcomes of requests: answered, parked, out of turn, silent, closed. The client id tells the broker what to do."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.frames import FrameReader
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from kohort_lab.conformance.outcome import Outcome, StepOutcome
from kohort_lab.conformance.scenarios.scenario import Scenario
from kohort_lab.conformance.scenarios.scenario_run import AGAIN_S, ScenarioRun, all_found
from kohort_lab.conformance.scenarios.script import ScriptError, Step


class _Broker(asyncio.Protocol):
    """Answers heartbeats: at once, when a later one releases them, never, or by closing the connection."""

    parked: list[tuple[asyncio.Transport, int]] = []  # noqa: RUF012  # shared by all connections

    asked: dict[str, int] = {}  # noqa: RUF012

    accept_s = 0.0
    """How long the process is busy when a connection has been made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        time.sleep(self.accept_s)
        self._transport = transport
        self._frames = FrameReader()

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            api, _, correlation_id, client_id, at = read_request_header(frame)
            match client_id:
                case str() if api == ApiKey.CONSUMER_GROUP_HEARTBEAT:
                    self._tell_epoch(request_reader(api, 0)(frame, at), correlation_id, str(client_id))
                case "park":
                    self.parked.append((self._transport, correlation_id))
                case "release":
                    for transport, parked_id in reversed(self.parked):
                        answer(transport, parked_id, 27)
                    self.parked.clear()
                    answer(self._transport, correlation_id, 0)
                case str() if client_id.startswith("release after "):
                    answer(self._transport, correlation_id, 0)
                    after_passes(int(client_id.split()[-1]), partial(answer, *self.parked[0], 27))
                case "close":
                    self._transport.close()
                case "nonsense":
                    self._transport.write(b"\x00\x00\x00\x05" + correlation_id.to_bytes(4, "big") + b"\x01")
                case str() if client_id.startswith("late "):
                    loop = asyncio.get_running_loop()
                    loop.call_later(int(client_id.split()[-1]) / 1000, answer, self._transport, correlation_id, 0)
                case str() if client_id.startswith("busy "):
                    asked = self.asked[client_id] = self.asked.get(client_id, 0) + 1
                    answer(self._transport, correlation_id, 14 if asked <= int(client_id.split()[-1]) else 0)
                case "silence":
                    pass
                case _:
                    answer(self._transport, correlation_id, 0)

    def _tell_epoch(self, request: m.ConsumerGroupHeartbeatRequest, correlation_id: int, client_id: str) -> None:
        """Answer with the epoch of the request and a number; the first answers may have another number, or be refusals."""
        numbers = client_id.split()
        asked = self.asked[client_id] = self.asked.get(client_id, 0) + 1
        number = numbers[min(asked, len(numbers)) - 1]
        is_refused = number == "refused"
        response = m.ConsumerGroupHeartbeatResponse(
            error_code=25 if is_refused else 0,
            member_id=request.member_id,
            member_epoch=99 if is_refused else request.member_epoch + int(number),
            heartbeat_interval_ms=5_000,
        )
        self._transport.write(response_encoder(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)(correlation_id, response))


def after_passes(passes: int, action: Callable[[], None]) -> None:
    """Once the loop has gone round so often."""
    if passes:
        asyncio.get_running_loop().call_soon(after_passes, passes - 1, action)
    else:
        action()


def answer(transport: asyncio.Transport, correlation_id: int, code: int) -> None:
    transport.write(response_encoder(ApiKey.HEARTBEAT, 0)(correlation_id, m.HeartbeatResponse(error_code=code)))


def outcomes_of(*steps: Step) -> dict[str, StepOutcome]:
    return run_of(*steps)[0]


def run_of(*steps: Step, **values: Any) -> tuple[dict[str, StepOutcome], dict[str, int]]:
    """The outcomes and the lateness of steps, in a case with these values."""

    async def run() -> tuple[Outcome, dict[str, int]]:
        _Broker.parked.clear()
        _Broker.asked.clear()
        server = await asyncio.get_running_loop().create_server(_Broker, "127.0.0.1", 0)
        scenario = Scenario(
            name="s",
            about="x",
            steps=steps,
            topics={},
            versions={"Heartbeat": 0, "Fetch": 4, "ConsumerGroupHeartbeat": 0},
            values=values,
        )
        scenario_run = ScenarioRun(scenario, ("127.0.0.1", server.sockets[0].getsockname()[1]), "kc-", {})
        try:
            return await scenario_run.run(), scenario_run.lateness_ms
        finally:
            server.close()

    outcome, lateness_ms = asyncio.run(run())
    return outcome.steps, lateness_ms


def heartbeat(label: int, client_id: str = "x", **more: Any) -> Step:
    fields = {"group_id": "g", "generation_id": 0, "member_id": "m"}
    return Step(label=str(label), send="Heartbeat", client_id=client_id, fields=fields, **more)


def modern_heartbeat(label: int, epoch: Any, client_id: str = "0", member_id: str = "a", **more: Any) -> Step:
    fields = {"group_id": "g", "member_epoch": epoch, "member_id": member_id}
    return Step(label=str(label), send="ConsumerGroupHeartbeat", client_id=client_id, fields=fields, **more)


def told(outcomes: dict[str, StepOutcome]) -> list[int]:
    return [outcome.answer["member_epoch"] for outcome in outcomes.values() if outcome.answer]


def test_answered_at_once() -> None:
    outcome = outcomes_of(heartbeat(1))["1"]
    assert (outcome.api, outcome.version, outcome.answer) == ("Heartbeat", 0, {"error_code": 0})
    assert (outcome.trouble, outcome.during) == ("", "")


def test_a_request_is_repeated_while_the_answer_has_a_value() -> None:
    outcomes, lateness_ms = run_of(heartbeat(1, "busy 3", again_while={"error_code": [14, 15]}))
    assert outcomes["1"].answer == {"error_code": 0}
    assert _Broker.asked == {"busy 3": 4}
    assert lateness_ms["1"] < 3 * 1000 * AGAIN_S, "nobody knows how long it should take"


def test_the_epoch_that_a_member_was_told_last() -> None:
    outcomes, _ = run_of(
        modern_heartbeat(1, 0, "5"),
        modern_heartbeat(2, 0, "7", member_id="b", keep={"kept": "member_id"}),
        modern_heartbeat(3, "$a.epoch"),
        modern_heartbeat(4, {"$plus": ["$b.epoch", -1]}, member_id="x"),
        modern_heartbeat(5, "$a.epoch", "refused"),
        modern_heartbeat(6, -1),
        modern_heartbeat(7, "$a.epoch", "1"),
        modern_heartbeat(8, "$e", member_id="$m"),
        modern_heartbeat(9, "$f", member_id="$m"),
        modern_heartbeat(10, "$kept.epoch"),
        e="$a.epoch",
        f={"$plus": ["$m.epoch", 1]},
        m="a",
    )
    assert told(outcomes) == [5, 7, 5, 6, 99, -1, 6, 6, 7, 7]


def test_a_request_is_repeated_while_the_member_is_told_the_same_epoch() -> None:
    outcomes, _ = run_of(
        modern_heartbeat(1, 0, "5"),
        modern_heartbeat(2, "$a.epoch", "0 0 1", again_while={"member_epoch": ["$a.epoch"]}),
    )
    assert told(outcomes) == [5, 6]
    assert _Broker.asked["0 0 1"] == 3


def test_the_epoch_of_nobody_is_refused() -> None:
    with pytest.raises(ScriptError, match=r"\$b\.epoch is not known"):
        run_of(modern_heartbeat(1, "$b.epoch"))


def test_a_member_that_is_told_nothing_is_at_0() -> None:
    outcomes, _ = run_of(modern_heartbeat(1, 0, "refused"), modern_heartbeat(2, "$a.epoch", "3"))
    assert told(outcomes) == [99, 3]


def test_a_request_is_not_repeated_for_ever() -> None:
    outcomes = outcomes_of(heartbeat(1, "busy 1000", again_while={"error_code": [14]}, wait_ms=1_000))
    assert outcomes["1"].answer == {"error_code": 14}


def test_paths_of_repeated_requests_reach_into_lists() -> None:
    states = [m.DescribeTransactionsResponseTransactionState(transaction_state=each) for each in ("Empty", "Ongoing")]
    response = m.DescribeTransactionsResponse(transaction_states=states)
    found = all_found(response, ["transaction_states", "*", "transaction_state"])
    assert list(found) == ["Empty", "Ongoing"]
    assert list(all_found(m.DescribeTransactionsResponse(), ["transaction_states", "*", "error_code"])) == []


def test_a_parked_request_is_answered_during_a_later_step() -> None:
    outcomes = outcomes_of(
        heartbeat(1, "park", parked=True, on="a"),
        heartbeat(2, on="b"),
        heartbeat(3, "release", on="b"),
        Step(label="4", receive=("1",)),
    )
    assert (outcomes["1"].during, outcomes["1"].answer) == ("3", {"error_code": 27})
    assert outcomes["4"].order == ["1"]


@pytest.mark.parametrize("passes", range(12))
def test_an_answer_that_comes_right_behind_that_of_a_step_came_during_the_step(passes: int) -> None:
    """Wherever the loop is between reading the step's answer and going on."""
    outcomes = outcomes_of(
        heartbeat(1, "park", parked=True, on="a"),
        heartbeat(2, f"release after {passes}", on="b"),
        Step(label="3", receive=("1",)),
    )
    assert outcomes["1"].during == "2"


@pytest.mark.parametrize(("in_order", "order"), [(False, ["1", "2"]), (True, ["2", "1"])])
def test_the_order_of_answers_counts_where_it_is_said(in_order: bool, order: list[str]) -> None:
    outcomes = outcomes_of(
        heartbeat(1, "park", parked=True, on="a"),
        heartbeat(2, "park", parked=True, on="b"),
        heartbeat(3, "release", on="c"),
        Step(label="4", receive=("1", "2"), in_order=in_order),
    )
    assert outcomes["4"].order == order


def test_never_answered() -> None:
    outcomes = outcomes_of(
        heartbeat(1, "park", parked=True),
        Step(label="2", receive=("1",), wait_ms=20),
        heartbeat(3, "silence", wait_ms=20, on="b"),
    )
    assert (outcomes["1"].during, outcomes["1"].answer) == ("never", None)
    assert outcomes["2"].order == []
    assert outcomes["3"].trouble == "silent"


def test_closed_by_the_broker_and_afterwards() -> None:
    outcomes = outcomes_of(heartbeat(1, "close"), heartbeat(2), heartbeat(3, on="b"))
    assert [outcomes[label].trouble for label in "123"] == ["closed", "closed", ""]


def test_closed_by_us() -> None:
    outcomes = outcomes_of(heartbeat(1, "park", parked=True), Step(label="2", close=True), heartbeat(3))
    assert [outcomes[label].trouble for label in "123"] == ["closed", "", "closed"]


def test_an_answer_that_is_not_the_protocol() -> None:
    assert outcomes_of(heartbeat(1, "nonsense"))["1"].trouble.startswith("undecodable")


def test_nothing_is_owed() -> None:
    outcomes = outcomes_of(heartbeat(1, "silence", unanswered=True), heartbeat(2))
    assert (outcomes["1"].answer, outcomes["1"].trouble) == (None, "")
    assert outcomes["2"].answer == {"error_code": 0}


def test_kept_and_ignored() -> None:
    outcomes = outcomes_of(
        heartbeat(
            1, keep={"code": "error_code", "nothing": "members.0.member_id"}, ignore=("error_code", "members.*.x")
        ),
        Step(
            label="2",
            send="Heartbeat",
            fields={"group_id": "g", "generation_id": "$code", "member_id": "$nothing"},
        ),
    )
    assert outcomes["1"].answer == {"error_code": "*"}
    assert outcomes["2"].answer == {"error_code": 0}


def test_lateness_is_that_of_each_step() -> None:
    """A pause is planned, a late answer is not; a wait for parked requests has no planned duration."""
    _, lateness_ms = run_of(
        heartbeat(1),
        heartbeat(2, "late 150"),
        Step(label="3", pause_ms=200),
        heartbeat(4, "late 150", parked=True, on="b"),
        Step(label="5", receive=("4",)),
    )
    assert lateness_ms["2"] >= 150
    assert lateness_ms["3"] < 200
    assert not lateness_ms.keys() & {"5"} or lateness_ms["5"] < 150


def test_a_request_that_may_wait_is_late_if_it_is_sent_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timers that earlier requests have started run on while a connection is opened."""
    monkeypatch.setattr(_Broker, "accept_s", 0.15)
    fetch = Step(label="1", send="Fetch", client_id="silence", parked=True, fields={"max_wait_ms": 0})
    _, lateness_ms = run_of(fetch)
    assert lateness_ms["1"] >= 150
