"""
Faults as values: a filter, a trigger and one effect.

Faults are asked in the order in which they were added, and the first whose trigger fires has its effect. One that only observes
counts, and lets the next one be asked.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, Literal

import msgspec

from kohort.control.requests.answers import answer_of
from kohort.control.requests.filters import Filter, Matcher, NameOf, nearest
from kohort.model.errors import ErrorCode
from kohort.wire.apis import ApiKey

EFFECTS: Final = (
    "error",
    "answer",
    "delay",
    "silence",
    "disconnect",
    "truncate",
    "slow",
    "throttle",
    "corrupt",
    "black_hole",
    "observe",
)
_WITH_RECORDS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
_ENDLESS: Final = frozenset({"observe", "black_hole"})


class FaultSpec(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    What `POST /faults` takes. Times are in seconds.

    Attributes:
        error: the name or number of a code. The request has no effect, and the answer has the code.
        message: the text beside the code, where the API has one.
        place: "request" for the highest place of the answer, "element" for the deepest; by default the code decides.
        answer: fields of the answer instead of what the handler says; fields that are left out have Kafka's defaults.
        delay: the request is handled later; with `after`, its answer leaves later.
        silence: there is no answer. The requests behind it on its connection wait.
        disconnect: the connection ends "before" the request has its effect, or "after" it.
        truncate: only so many bytes of the answer are sent, then the connection ends.
        slow: the answer is sent with so many bytes a second.
        throttle: the client is throttled, and told so.
        corrupt: a byte of each record batch of the answer is changed.
        black_hole: all requests that match wait until the fault is removed.
        observe: no effect; the fault counts.
        after: true lets the request have its effect first. The id of a fault lets this one wait until that has hit.
        after_fault: the same id, where `after` is true.
        times: hits until the fault is spent. 1 unless another trigger is given.
        on_call: only the request with this number among those that match is hit.
        always: every request that matches is hit.
        probability: of a hit, from 0 to 1, with `seed`.
        scope: the test to which the fault belongs.
    """

    error: str | int | None = None
    message: str | None = None
    place: Literal["request", "element"] | None = None
    answer: dict[str, Any] | None = None
    delay: float | None = None
    silence: bool = False
    disconnect: Literal["before", "after"] | None = None
    truncate: int | None = None
    slow: int | None = None
    throttle: float | None = None
    corrupt: bool = False
    black_hole: bool = False
    observe: bool = False
    after: bool | str = False
    after_fault: str | None = None
    times: int | None = None
    on_call: int | None = None
    always: bool = False
    probability: float | None = None
    seed: int | None = None
    scope: str = ""


class FaultView(msgspec.Struct, frozen=True, kw_only=True):
    """
    A fault as clients see it.

    Attributes:
        calls: requests that matched.
        hits: requests on which the fault had its effect.
        is_spent: it hits no more.
    """

    id: str
    scope: str
    effect: str
    calls: int
    hits: int
    is_removed: bool
    is_spent: bool
    spec: FaultSpec


class Fault:
    """
    A fault with its counts.

    Args:
        other: finds the fault of `after_fault`.

    Raises:
        ValueError: the values do not go together.
    """

    def __init__(
        self, fault_id: str, spec: FaultSpec, name_of: NameOf, other: Callable[[str], Fault | None] = lambda _id: None
    ) -> None:
        self.id = fault_id
        self.spec = spec
        self.matcher = Matcher(spec, name_of)
        self.effect = _effect_of(spec)
        self.code = code_of(spec.error) if spec.error is not None else ErrorCode.NONE
        self.is_after = spec.after is True or spec.disconnect == "after"
        self.calls = 0
        self.hits = 0
        self.is_removed = False
        self.on_hit: list[Callable[[], None]] = []
        self._random = _check_trigger(spec)
        self._times = spec.times if spec.times is not None else self._default_times()
        self._previous = self._find_previous(other)
        _check_effect(spec, self.effect, self.matcher.apis)

    def _default_times(self) -> int | None:
        spec = self.spec
        is_endless = spec.always or spec.probability is not None or self.effect in _ENDLESS
        return None if is_endless else 1

    def _find_previous(self, other: Callable[[str], Fault | None]) -> Fault | None:
        wanted = self.spec.after_fault or (self.spec.after if isinstance(self.spec.after, str) else None)
        if wanted is None:
            return None
        found = other(wanted)
        if found is None:
            raise ValueError(f"there is no fault {wanted!r} to come after")
        return found

    @property
    def is_spent(self) -> bool:
        return self.is_removed or (self._times is not None and self.hits >= self._times)

    @property
    def is_observer(self) -> bool:
        return self.effect == "observe"

    @property
    def is_constant(self) -> bool:
        """Whether it hits every request that matches, from its beginning to its removal."""
        return self._times is None and self._random is None and self._previous is None and self.spec.on_call is None

    @property
    def has_hit_enough(self) -> bool:
        """Whether a fault that comes after this one may hit."""
        return self.hits >= (self._times or 1)

    def fires(self) -> bool:
        """Whether the trigger lets a request that matches be hit. Counts the request."""
        if self.is_spent or (self._previous is not None and not self._previous.has_hit_enough):
            return False
        self.calls += 1
        spec = self.spec
        if spec.on_call is not None and self.calls < spec.on_call:
            return False
        return self._random is None or self._random.random() < (spec.probability or 0.0)

    def hit(self) -> None:
        """Count a hit."""
        self.hits += 1
        for tell in list(self.on_hit):
            tell()

    def view(self) -> FaultView:
        return FaultView(
            id=self.id,
            scope=self.spec.scope,
            effect=self.effect,
            calls=self.calls,
            hits=self.hits,
            is_removed=self.is_removed,
            is_spent=self.is_spent,
            spec=self.spec,
        )


def _effect_of(spec: FaultSpec) -> str:
    given = [name for name in EFFECTS if (value := getattr(spec, name)) is not None and value is not False]
    # A delay goes with the effects that have none of their own.
    others = [name for name in given if name != "delay"]
    if len(others) > 1:
        raise ValueError(f"a fault has one effect; these are {len(others)}: {', '.join(others)}")
    if not given:
        raise ValueError(f"a fault has an effect: one of {', '.join(EFFECTS)}")
    return (others or given)[0]


def _check_trigger(spec: FaultSpec) -> Random | None:
    given = [name for name in ("times", "on_call", "probability") if getattr(spec, name) is not None]
    given += ["always"] if spec.always else []
    if "always" in given and ("times" in given or "on_call" in given):
        raise ValueError(f"these triggers exclude each other: {', '.join(given)}")
    for name in ("times", "on_call"):
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more; it is {value}")
    if spec.probability is None:
        if spec.seed is not None:
            raise ValueError("a seed needs a probability")
        return None
    if spec.seed is None:
        raise ValueError("a probability needs a seed, so that the test can be run again with the same chances")
    if not 0 <= spec.probability <= 1:
        raise ValueError(f"probability must be from 0 to 1; it is {spec.probability}")
    return Random(spec.seed)


DELAY_SECONDS_MAX: Final = 3_600.0


def _check_effect(spec: FaultSpec, effect: str, apis: frozenset[ApiKey] | None) -> None:
    for name in ("delay", "throttle"):
        value = getattr(spec, name)
        if value is not None and not 0 < value <= DELAY_SECONDS_MAX:
            raise ValueError(f"{name} must be more than 0 and at most {DELAY_SECONDS_MAX:.0f} seconds; it is {value}")
    if spec.truncate is not None and spec.truncate < 0:
        raise ValueError(f"truncate must be 0 or more bytes; it is {spec.truncate}")
    if spec.slow is not None and spec.slow < 1:
        raise ValueError(f"slow must be 1 or more bytes a second; it is {spec.slow}")
    if spec.corrupt and (apis is None or not apis <= _WITH_RECORDS):
        raise ValueError("corrupt needs api Fetch or ShareFetch: other answers have no records")
    if spec.answer is not None and (apis is None or len(apis) != 1):
        raise ValueError("an answer needs one api")
    if spec.answer is not None and apis is not None:
        answer_of(next(iter(apis)), spec.answer)
    if effect != "error" and (spec.message is not None or spec.place is not None):
        raise ValueError("message and place belong to an error")
    if effect == "black_hole" and spec.after is True:
        raise ValueError("a black hole has no after: the requests wait before they have an effect")


def code_of(given: str | int) -> ErrorCode:
    """
    An error code by its name or number.

    Raises:
        ValueError: there is none, or it is NONE.
    """
    if isinstance(given, str) and not given.lstrip("-").isdigit():
        try:
            code = ErrorCode[given.upper()]
        except KeyError:
            raise ValueError(f"there is no error code {given!r}{nearest(given, list(ErrorCode.__members__))}") from None
    else:
        try:
            code = ErrorCode(int(given))
        except ValueError:
            raise ValueError(f"there is no error code {given}") from None
    if not code:
        raise ValueError("NONE is no error: use observe")
    return code
