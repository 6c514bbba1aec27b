"""
Rules for differences from Apache Kafka that are meant to be.

A rule names scenario, step and field, and matches nothing else. A rule that matches no difference is out of date: it could hide
a defect, so a run reports it as a failure (`unused`).
"""

from collections.abc import Iterable, Sequence

import msgspec

from kohort_lab.conformance.compare import Comparison, Difference


class Deliberate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A rule.

    Attributes:
        scenario: the name of a scenario, or `SCRIPT/*` for all scenarios of a script.
        step: the label of a step.
        field: the path of a field, or `(trouble)` and the like. `*` stands for any one element of the path.
    """

    reason: str
    scenario: str
    step: str
    field: str

    def covers(self, difference: Difference) -> bool:
        """Whether the difference is the one that the rule means."""
        return (
            self.concerns(difference.scenario)
            and self.step == difference.step
            and _matches(self.field.split("."), difference.field.split("."))
        )

    def concerns(self, scenario: str) -> bool:
        """Whether the rule is about the scenario of this name."""
        if self.scenario.endswith("/*"):
            return scenario.startswith(self.scenario[:-1])
        return scenario == self.scenario

    def __str__(self) -> str:
        return f"{self.scenario}, step {self.step}, {self.field}: {self.reason}"


def unused(rules: Sequence[Deliberate], comparisons: Iterable[Comparison], known: Iterable[str]) -> list[Deliberate]:
    """
    The rules that match no difference.

    Args:
        comparisons: of one run.
        known: names of all scenarios. A rule is left out unless all scenarios that it concerns were compared: a partial run,
            or a broker without the API, says nothing about it.
    """
    compared = {each.scenario: each for each in comparisons if not each.unsupported}
    names = list(known)
    return [
        rule
        for rule in rules
        if all(name in compared for name in names if rule.concerns(name))
        and not any(rule.covers(difference) for each in compared.values() for difference in each.differences)
    ]


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    return len(pattern) == len(path) and all(each in ("*", part) for each, part in zip(pattern, path, strict=True))
