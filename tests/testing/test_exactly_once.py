"""The verdict on outputs of exactly-once processing: each kind of defect is found and counted."""

import random

import pytest

from kohort_lab.exactly_once import Input, Output, judge

INPUTS = [
    Input(partition, offset, f"key-{partition}-{offset % 2}") for partition in range(2) for offset in range(0, 20, 2)
]
"""Offsets have gaps, as between the markers of transactions."""


def outputs_of(inputs: list[Input]) -> list[Output]:
    """One output for each input, all in one partition."""
    return [Output(0, offset, it.key, (it.partition, it.offset)) for offset, it in enumerate(inputs)]


def test_each_input_once_in_order_per_key(rng: random.Random) -> None:
    """Outputs of different partitions of the source may be interleaved."""
    left = {0: [it for it in INPUTS if it.partition == 0], 1: [it for it in INPUTS if it.partition == 1]}
    mixed = [left[rng.choice([number for number in left if left[number]])].pop(0) for _ in INPUTS]
    verdict = judge(INPUTS, outputs_of(mixed))
    assert verdict.is_exactly_once, verdict
    assert (verdict.inputs, verdict.outputs, verdict.examples) == (20, 20, ())


OUTPUTS = outputs_of(INPUTS)
DEFECTS = {
    "nothing": ([], (20, 0, 0, 0)),
    "lost in the middle": (OUTPUTS[:7] + OUTPUTS[8:], (1, 0, 0, 0)),
    "lost at the end": (OUTPUTS[:-3], (3, 0, 0, 0)),
    "twice in a row": (OUTPUTS[:5] + OUTPUTS[4:], (0, 1, 0, 0)),
    "a batch again": (OUTPUTS + OUTPUTS[2:8], (0, 6, 0, 0)),
    "two of one key exchanged": ([*OUTPUTS[:3], OUTPUTS[4], OUTPUTS[3], *OUTPUTS[5:]], (0, 0, 1, 0)),
    "of another key": ([*OUTPUTS[:-1], OUTPUTS[-1]._replace(key="another")], (1, 0, 0, 1)),
    "of no input": ([*OUTPUTS, Output(0, 99, "key-0-0", (0, 1))], (0, 0, 0, 1)),
}
"""By name: outputs, and how many are lost, duplicated, out of order, and unknown."""


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_is_counted(name: str) -> None:
    outputs, counts = DEFECTS[name]
    verdict = judge(INPUTS, outputs)
    assert (verdict.lost, verdict.duplicated, verdict.disordered, verdict.unknown) == counts
    assert not verdict.is_exactly_once
    assert verdict.examples


def test_no_input_and_no_output() -> None:
    assert judge([], []).is_exactly_once
