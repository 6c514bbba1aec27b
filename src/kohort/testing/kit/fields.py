"""The fields of faults and holds, as arguments. The types are those of the control API; a test compares them."""

from typing import Any, Literal, TypedDict


class FilterFields(TypedDict, total=False):
    """Which requests: every field that is given must match. As `kohort.control.requests.filters.Filter`."""

    api: str | int | list[str | int]
    min_version: int
    max_version: int
    client_id: str
    connection: str
    listener: str
    broker: int
    principal: str
    topic: str
    topic_id: str
    partition: int
    group: str
    member: str
    transactional_id: str
    producer_id: int
    resource: str


class FaultFields(FilterFields, total=False):
    """The effect on these requests, and its trigger. As `kohort.control.requests.faults.FaultSpec`."""

    error: str | int
    message: str
    place: Literal["request", "element"]
    answer: dict[str, Any]
    delay: float
    silence: bool
    disconnect: Literal["before", "after"]
    truncate: int
    slow: int
    throttle: float
    corrupt: bool
    black_hole: bool
    observe: bool
    after: bool | str
    after_fault: str
    times: int
    on_call: int
    always: bool
    probability: float
    seed: int


class HoldFields(FilterFields, total=False):
    """The requests that a hold stops, and its lease. As `kohort.control.requests.holds.HoldSpec`."""

    at: Literal["request", "reply"]
    point: str
    times: int
    lease: float
