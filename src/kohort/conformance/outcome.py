"""What came of a story on one side: plain values, ready to be kept and compared."""

from typing import Any

import msgspec


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Attributes:
        api, version: of the answer.
        answer: the response's fields.
        trouble: instead of one: "closed", "silent", "undecodable: ...".
        during: the step in which the answer came, if that is another one: a request was parked. "never" if none came.
        elapsed_ms: from the request to its answer.
        order: the steps whose answers were received, in order of their coming.
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
        records: what the story's groups left in `__consumer_offsets`, in the order of the log, by group.
        unsupported: why the story could not be told: an API with a version, or another reason.
        died: the broker did not survive the story.
    """

    steps: dict[str, StepOutcome] = {}
    records: dict[str, list[dict[str, Any]]] = {}
    unsupported: str = ""
    died: bool = False
