"""The outcome of a scenario on one side: plain values, ready to be stored and compared."""

from typing import Any

import msgspec


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Attributes:
        api, version: of the answer.
        answer: the response's fields.
        trouble: why there is no answer: "closed", "silent", "undecodable: ...".
        during: the step during which a parked request was answered; empty if that was its own step, "never" without an answer.
        elapsed_ms: from the request to its answer.
        order: the steps whose answers were received, in the order of arrival.
    """

    api: str = ""
    version: int = -1
    answer: dict[str, Any] | None = None
    trouble: str = ""
    during: str = ""
    elapsed_ms: int = 0
    order: list[str] = []


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Attributes:
        steps: by label.
        records: the records of the scenario's groups in `__consumer_offsets`, by group, in the order of the log.
        transactions: the records of its transactional ids in `__transaction_state`, likewise.
        unsupported: why the scenario was not run: an API with a version, or another reason.
        died: whether the broker ended during the scenario.
    """

    steps: dict[str, StepOutcome] = {}
    records: dict[str, list[dict[str, Any]]] = {}
    transactions: dict[str, list[dict[str, Any]]] = {}
    unsupported: str = ""
    died: bool = False
