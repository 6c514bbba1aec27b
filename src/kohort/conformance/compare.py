"""
Two outcomes of one story, field by field.

Times compare with a tolerance: what a clock gave is `<now>` on both sides (canon.py), and how long an answer took counts when
the two differ by more than `ELAPSED_TOLERANCE_MS`. An API that only one side serves is told apart from a difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kohort.conformance.offsets_log import UNREADABLE
from kohort.conformance.outcome import Outcome, StepOutcome
from kohort.conformance.scenario import Scenario
from kohort.model.errors import ConfigError

ELAPSED_TOLERANCE_MS = 1_500

WAITING = frozenset({"JoinGroup", "SyncGroup", "Fetch"})
"""The APIs whose answers may be long in coming by design. How long the others take is a matter of benchmarks."""

TIMING = frozenset({"(during)", "(order)", "(elapsed_ms)"})
"""The fields of a difference that say when an answer came, and not what it was."""

RECORDS = "records"
"""In place of a step, for what is in `__consumer_offsets`."""

_ABSENT = "(absent)"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        step: the label of a step; "records" for what is in `__consumer_offsets`.
        api, version: of the answer.
        field: the path of the field in it; empty when the outcome itself differs.
        reason: why the difference is meant to be; empty when it is not.
    """

    story: str
    step: str
    api: str
    version: int
    field: str
    ours: Any
    theirs: Any
    reason: str = ""

    def __str__(self) -> str:
        what = f"{self.api} v{self.version} " if self.api else ""
        return f"{self.story}, step {self.step}: {what}{self.field or 'outcome'}: ours {self.ours!r}, theirs {self.theirs!r}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """
    What comparing one story gave.

    Attributes:
        compared: how many values were compared.
        unsupported: what a side lacks, so that the story was not told to it.
        answers: per step that asked for something: API, version, whether the answers are the same.
    """

    story: str
    compared: int
    differences: tuple[Difference, ...] = ()
    unsupported: str = ""
    answers: tuple[tuple[str, int, bool], ...] = ()

    def has(self, step: str, field: str) -> bool:
        """Whether there is a difference in this place."""
        return any((each.step, each.field) == (step, field) for each in self.differences)


class Deliberate(msgspec.Struct, frozen=True, kw_only=True):
    """
    A difference that is meant to be; "" means any.

    Attributes:
        field: the beginning of the field's path.
    """

    reason: str
    story: str = ""
    step: str = ""
    api: str = ""
    field: str = ""

    def covers(self, difference: Difference) -> bool:
        return (
            difference.story.startswith(self.story)
            and self.step in ("", difference.step)
            and self.api in ("", difference.api)
            and difference.field.startswith(self.field)
        )


def compare(
    story: Scenario,
    ours: Outcome,
    theirs: Outcome,
    deliberate: Sequence[Deliberate] = (),
    *,
    only: Comparison | None = None,
    settled: Sequence[Difference] = (),
) -> Comparison:
    """
    Every step's outcome, then the records that the story left.

    Args:
        only: differences count that are in this one, too: it was told before, and not at its pace.
        settled: what earlier tellings of the story found beyond doubt; it stays, whether it shows again or not.

    Raises:
        ConfigError: the two were not told the same story, because one is recorded and older than its script.
    """
    if ours.died or theirs.died:
        died = Difference(
            story=story.name, step="any", api="", version=-1, field="(broker)", ours=_life(ours), theirs=_life(theirs)
        )
        return Comparison(story=story.name, compared=1, differences=(died,) if ours.died != theirs.died else ())
    if ours.unsupported or theirs.unsupported:
        return Comparison(
            story=story.name, compared=0, unsupported=ours.unsupported or f"(oracle) {theirs.unsupported}"
        )
    if not ours.steps.keys() == theirs.steps.keys() == {step.label for step in story.steps}:
        raise ConfigError(
            f"the recording of {story.name} is older than its script; refresh it: make conformance-record"
        )
    counter = _Counter()
    differences: list[Difference] = []
    answers = []
    for step in story.steps:
        our, their = ours.steps[step.label], theirs.steps[step.label]
        api, version = their.api or our.api, max(our.version, their.version)
        found = [
            Difference(
                story=story.name, step=step.label, api=api, version=version, field=field, ours=mine, theirs=other
            )
            for field, mine, other in _step_differences(our, their, counter)
            if only is None or only.has(step.label, field)
        ]
        found += _not_in(found, settled, step.label)
        differences += found
        if api:
            answers.append((api, version, all(_reason(each, deliberate) for each in found)))
    found = [
        Difference(story=story.name, step=RECORDS, api="", version=-1, field=field, ours=mine, theirs=other)
        for field, mine, other in _differences(ours.records, theirs.records, "", counter)
        if only is None or only.has(RECORDS, field)
    ]
    if UNREADABLE in ours.records and UNREADABLE in theirs.records:
        # A record that cannot be read is an error, even if both brokers wrote the same.
        both = ours.records[UNREADABLE], theirs.records[UNREADABLE]
        found.append(
            Difference(
                story=story.name, step=RECORDS, api="", version=-1, field=UNREADABLE, ours=both[0], theirs=both[1]
            )
        )
    differences += [*found, *_not_in(found, settled, RECORDS)]
    judged = tuple(msgspec.structs.replace(each, reason=_reason(each, deliberate)) for each in differences)
    return Comparison(story=story.name, compared=counter.count, differences=judged, answers=tuple(answers))


def _not_in(found: Sequence[Difference], settled: Sequence[Difference], step: str) -> list[Difference]:
    """What is settled of a step and did not show in this telling."""
    fields = {each.field for each in found}
    return [each for each in settled if each.step == step and each.field not in fields]


def _life(outcome: Outcome) -> str:
    return "died" if outcome.died else "lived"


def _reason(difference: Difference, deliberate: Sequence[Deliberate]) -> str:
    return next((each.reason for each in deliberate if each.covers(difference)), "")


class _Counter:
    """How many values were looked at."""

    def __init__(self) -> None:
        self.count = 0


_Found = tuple[str, Any, Any]


def _step_differences(ours: StepOutcome, theirs: StepOutcome, counter: _Counter) -> Iterator[_Found]:
    for name in ("trouble", "during", "order", "version"):
        counter.count += 1
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other:
            yield f"({name})", mine, other
    if theirs.api in WAITING and abs(ours.elapsed_ms - theirs.elapsed_ms) > ELAPSED_TOLERANCE_MS:
        yield "(elapsed_ms)", ours.elapsed_ms, theirs.elapsed_ms
    if ours.answer is not None and theirs.answer is not None:
        if theirs.api == "ApiVersions":
            yield from _served_differences(ours.answer, theirs.answer, counter)
        else:
            yield from _differences(ours.answer, theirs.answer, "", counter)


_LISTS_OF_SERVED = {"api_keys": "api_key", "supported_features": "name", "finalized_features": "name"}


def _served_differences(ours: dict[str, Any], theirs: dict[str, Any], counter: _Counter) -> Iterator[_Found]:
    """What one side does not serve at all is no difference; in what versions it serves the rest is."""
    mine, other = dict(ours), dict(theirs)
    for name, key in _LISTS_OF_SERVED.items():
        if name in mine and name in other:
            both = {each[key] for each in mine[name]} & {each[key] for each in other[name]}
            mine[name] = [each for each in mine[name] if each[key] in both]
            other[name] = [each for each in other[name] if each[key] in both]
    yield from _differences(mine, other, "", counter)


def _differences(ours: Any, theirs: Any, path: str, counter: _Counter) -> Iterator[_Found]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in [*theirs, *(each for each in ours if each not in theirs)]:
            yield from _differences(
                ours.get(key, _ABSENT), theirs.get(key, _ABSENT), f"{path}.{key}" if path else key, counter
            )
    elif isinstance(ours, list) and isinstance(theirs, list):
        for number in range(max(len(ours), len(theirs))):
            mine = ours[number] if number < len(ours) else _ABSENT
            other = theirs[number] if number < len(theirs) else _ABSENT
            yield from _differences(mine, other, f"{path}.{number}", counter)
    else:
        counter.count += 1
        if ours != theirs or type(ours) is not type(theirs):
            yield path, ours, theirs
