"""
Prometheus' text format, version 0.0.4: what a scrape is answered.

Written by hand: the format is small, and importing prometheus-client costs a third of the budget of a start.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(msgspec.Struct, frozen=True):
    """
    One number.

    Attributes:
        suffix: of the family's name, for the parts of a histogram (`_bucket`, `_sum`, `_count`).
    """

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Family(msgspec.Struct, frozen=True):
    """
    All samples of one metric.

    Attributes:
        name: with the unit last, and `_total` for counters.
        about: one line, for people.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    samples: Sequence[Sample]


def counter(name: str, about: str, value: float) -> Family:
    return Family(name, "counter", about, (Sample(value),))


def gauge(name: str, about: str, value: float) -> Family:
    return Family(name, "gauge", about, (Sample(value),))


def labelled(
    name: str, kind: Literal["counter", "gauge"], about: str, label: str, values: Iterable[tuple[str, float]]
) -> Family:
    """A metric that is counted apart by one label."""
    return Family(name, kind, about, [Sample(value, {label: text}) for text, value in values])


def render(families: Iterable[Family]) -> str:
    """
    The text of a scrape.

    Raises:
        ValueError: two families have one name, which readers refuse.
    """
    lines: list[str] = []
    seen: set[str] = set()
    for family in families:
        if family.name in seen:
            raise ValueError(f"the metric {family.name} is there twice")
        seen.add(family.name)
        about = family.about.replace("\\", "\\\\").replace("\n", "\\n")
        lines += (f"# HELP {family.name} {about}", f"# TYPE {family.name} {family.kind}")
        lines += (
            f"{family.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples
        )
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(float(value))
