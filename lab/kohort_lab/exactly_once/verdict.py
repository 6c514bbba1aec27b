"""The comparison of inputs and outputs. It knows no client, so outputs may come from any processor."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

EXAMPLES_MAX = 10


class Input(NamedTuple):
    """A record of the source topic."""

    partition: int
    offset: int
    key: str


class Output(NamedTuple):
    """
    A record of the sink topic, in the order of a `read_committed` consumer.

    Attributes:
        partition, offset: its position in the sink.
        source: the partition and offset of the input from which it was made.
    """

    partition: int
    offset: int
    key: str
    source: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Attributes:
        lost: inputs without an output.
        duplicated: outputs after the first of an input.
        disordered: outputs whose input precedes that of an earlier output of the same key.
        unknown: outputs without an input.
        examples: a sentence for each of the first defects.
    """

    inputs: int
    outputs: int
    lost: int
    duplicated: int
    disordered: int
    unknown: int
    examples: tuple[str, ...] = ()

    @property
    def is_exactly_once(self) -> bool:
        return not (self.lost or self.duplicated or self.disordered or self.unknown)

    def __str__(self) -> str:
        return (
            f"{self.inputs:,} inputs, {self.outputs:,} outputs: {self.lost:,} lost, {self.duplicated:,} duplicated, "
            f"{self.disordered:,} out of order, {self.unknown:,} unknown"
        )


def judge(inputs: Iterable[Input], outputs: Iterable[Output]) -> Verdict:
    """
    Compare inputs with outputs.

    Args:
        outputs: those of one key in the order of their offsets. All records of one key come from one partition of the source
            and go to one partition of the sink.
    """
    key_of = {(each.partition, each.offset): each.key for each in inputs}
    count_of: Counter[tuple[int, int]] = Counter()
    newest: dict[str, int] = {}
    duplicated = disordered = unknown = 0
    examples: list[str] = []
    for output in outputs:
        where = f"{output} at {output.partition}-{output.offset}"
        if key_of.get(output.source) != output.key:
            unknown += 1
            examples.append(f"no input: {where}")
            continue
        count_of[output.source] += 1
        if count_of[output.source] > 1:
            duplicated += 1
            examples.append(f"duplicate: {where}")
        elif output.source[1] < newest.get(output.key, -1):
            disordered += 1
            examples.append(f"out of order: {where}, after the output of offset {newest[output.key]}")
        newest[output.key] = max(output.source[1], newest.get(output.key, -1))
    lost = [source for source in key_of if source not in count_of]
    examples += [f"lost: partition {partition}, offset {offset}" for partition, offset in lost[:EXAMPLES_MAX]]
    return Verdict(
        inputs=len(key_of),
        outputs=sum(count_of.values()) + unknown,
        lost=len(lost),
        duplicated=duplicated,
        disordered=disordered,
        unknown=unknown,
        examples=tuple(examples[:EXAMPLES_MAX]),
    )
