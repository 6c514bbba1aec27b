"""
The checks of which a row of the table consists.

A check looks at a request and decides what its handler gets: the request, the part of it that is allowed, or nothing. What was
refused is added to the answer of the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kohort.broker.access.requester import REFUSALS, SENTENCES, Requester, Steps, Work, finished
from kohort.broker.apis.request_rules import with_field
from kohort.machine.gradual import HANDLER_STEP, chunks, gathered
from kohort.model.errors import ErrorCode
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from kohort.wire.apis import ApiKey
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import message

Complete: TypeAlias = Callable[[Any], Work[Any]]
"""Makes the answer of the client from the answer of the handler."""

NO_OPERATIONS: Final = -(1 << 31)
"""The client has not asked for the authorized operations."""


class Need(NamedTuple):
    """
    What a user needs.

    Attributes:
        field: of the request, with the name of the resource or with the elements; empty for the cluster, or if `detail` says
            which resources.
        detail: when it is needed, or of which resources, for the documents.
    """

    operation: Operation
    resource_type: ResourceType
    field: str = ""
    detail: str = ""

    def is_met(self, request: Any, requester: Requester, *, logs_refusal: bool = True) -> bool:
        name = CLUSTER_NAME if self.resource_type is ResourceType.CLUSTER else getattr(request, self.field)
        return requester.may(self.operation, self.resource_type, name, logs_refusal=logs_refusal)


def _alternatives(all_by: Need | None, each: Need) -> tuple[Need, ...]:
    """The permission that allows all, if there is one, and those that allow each."""
    return (each,) if all_by is None else (all_by._replace(detail="for all"), each._replace(detail=f"or {each.detail}"))


def at_cluster(operation: Operation, detail: str = "") -> Need:
    """A need at the cluster as a whole."""
    return Need(operation, ResourceType.CLUSTER, detail=detail)


class Decision(NamedTuple):
    """
    What a check decides.

    Attributes:
        request: for the handler, or for the next check; None if the handler is not asked.
        complete: adds what was refused to the answer of the handler.
        answer: the answer if the handler is not asked.
        completes_silence: whether `complete` also takes a `NoResponse`.
    """

    request: Any = None
    complete: Complete | None = None
    answer: Any = None
    completes_silence: bool = False


class Check:
    """
    One check of an API.

    Attributes:
        needs: what it asks the authorizer for, in order.
        is_asking: whether it asks the authorizer itself.
    """

    needs: tuple[Need, ...] = ()
    is_asking = True

    def decide(self, request: Any, requester: Requester) -> Work[Decision | None]:
        """Decide; None if the whole request is allowed and nothing is added to the answer."""
        raise NotImplementedError


class Open(Check):
    """Everybody may call the API; `reason` says why."""

    is_asking = False

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def decide(self, _request: Any, _requester: Requester) -> None:
        return None


class AskedLater(Open):
    """The handler itself asks, because only it knows the resources."""

    def __init__(self, reason: str, *needs: Need) -> None:
        super().__init__(reason)
        self.needs = needs


Refuse: TypeAlias = Callable[[Any, ErrorCode, Requester], Any]
"""(request, code of the refusal, requester) to the answer of a request that is refused as a whole, or to `Steps` of it."""


class Whole(Check):
    """
    The request is refused as a whole.

    Args:
        needs: all are needed; of a tuple of them one is enough.
    """

    def __init__(self, refuse: Refuse, *needs: Need | tuple[Need, ...]) -> None:
        self._refuse = refuse
        alternatives = [(need,) if isinstance(need, Need) else need for need in needs]
        self._needs = [(others, last) for *others, last in alternatives]
        self.needs = tuple(
            need._replace(detail="or") if place else need for some in alternatives for place, need in enumerate(some)
        )

    def decide(self, request: Any, requester: Requester) -> Steps[Decision] | None:
        for others, last in self._needs:
            if others and any(need.is_met(request, requester, logs_refusal=False) for need in others):
                continue
            if not last.is_met(request, requester):
                return self._refused(request, REFUSALS[last.resource_type], requester)
        return None

    def _refused(self, request: Any, code: ErrorCode, requester: Requester) -> Steps[Decision]:
        return Decision(answer=(yield from finished(self._refuse(request, code, requester))))


class NamedGroup(Whole):
    """As `Whole`, for a group that may be null: its handler refuses that."""

    def decide(self, request: Any, requester: Requester) -> Steps[Decision] | None:
        return None if request.group_id is None else super().decide(request, requester)


def blank(api: ApiKey, *, has_message: bool = False, **fields: Any) -> Refuse:
    """The answer of one error code, and of these fields."""
    response = response_class(api)

    def refuse(_request: Any, code: ErrorCode, _requester: Requester) -> Any:
        message = {"error_message": SENTENCES[code]} if has_message else {}
        return response(error_code=code, **message, **fields)

    return refuse


def response_class(api: ApiKey) -> type[msgspec.Struct]:
    return message_classes(f"{api.api_name}Response")[f"{api.api_name}Response"]


def element_class(api: ApiKey, path: str) -> type[msgspec.Struct]:
    """The class of the elements of an array of a response, by the path of its fields."""
    schema = message(f"{api.api_name}Response")
    struct = schema.name
    for name in path.split("."):
        struct = next(field.type for field in schema.structs[struct] if field.name == name)
    return message_classes(schema.name)[struct]


class TopicShape:
    """
    Where a request and its answer have the partitions of topics.

    Attributes:
        api: of the messages.
        topics, partitions, index: the fields of the request; `index` is empty if a partition is its number.
        answers, answer_partitions, answer_index, code: the fields of the answer.
        name: of a topic, in both.
        ids_since: the first version that names topics by their ids.
        blank: other fields of a partition that is refused.
        has_message: whether it has Kafka's sentence.
    """

    def __init__(
        self,
        api: ApiKey,
        *,
        topics: str = "topics",
        partitions: str = "partitions",
        index: str = "partition_index",
        answers: str = "topics",
        answer_partitions: str = "partitions",
        answer_index: str = "partition_index",
        code: str = "error_code",
        name: str = "name",
        ids_since: int | None = None,
        has_message: bool = False,
        blank: Mapping[str, Any] | None = None,
    ) -> None:
        self.response = response_class(api)
        self.topics = topics
        self._partitions = partitions
        self._index = index
        self.answers = answers
        self._answer_partitions = answer_partitions
        self._answer_index = answer_index
        self._code = code
        self._name = name
        self._ids_since = ids_since
        self._blank = dict(blank or {})
        self._has_message = has_message
        self._topic_class = element_class(api, answers)
        self._partition_class = element_class(api, f"{answers}.{answer_partitions}")

    def few_names(self, topics: Sequence[Any], requester: Requester) -> list[str | None]:
        """The names of topics; None for an unknown id."""
        if self._ids_since is None or requester.api_version < self._ids_since:
            return [getattr(topic, self._name) for topic in topics]
        return [requester.resources.name_of(topic.topic_id) for topic in topics]

    def names(self, topics: Sequence[Any], requester: Requester) -> Steps[list[str | None]]:
        """As `few_names`, in steps."""
        found: list[str | None] = []
        for some in chunks(topics, HANDLER_STEP):
            found += self.few_names(some, requester)
            yield
        return found

    def refused(self, topics: Sequence[Any], code: ErrorCode) -> Steps[list[Any]]:
        """The answers of topics whose partitions are all refused."""
        found = []
        count = 0
        for topic in topics:
            partitions = []
            for partition in getattr(topic, self._partitions):
                partitions.append(self.refused_partition(partition, code))
                count += 1
                if count % HANDLER_STEP == 0:
                    yield
            found.append(self.answered_topic(topic, partitions))
        return found

    def answered_topic(self, topic: Any, partitions: Sequence[Any]) -> Any:
        """The answer of a topic."""
        fields: dict[str, Any] = {self._answer_partitions: partitions}
        if self._name:
            fields[self._name] = getattr(topic, self._name)
        if self._ids_since is not None:
            fields["topic_id"] = topic.topic_id
        return self._topic_class(**fields)

    def refused_partition(self, partition: Any, code: ErrorCode) -> Any:
        index = getattr(partition, self._index) if self._index else partition
        fields = {self._answer_index: index, self._code: int(code), **self._blank}
        if self._has_message:
            fields["error_message"] = SENTENCES[code]
        return self._partition_class(**fields)

    def all_refused(self, *, has_top: bool = False) -> Refuse:
        """
        A refusal of the request as a whole, at each partition.

        Args:
            has_top: whether the answer as a whole has the code, too, and Kafka's sentence.
        """

        def refuse(request: Any, code: ErrorCode, _requester: Requester) -> Steps[Any]:
            topics = yield from self.refused(getattr(request, self.topics) or (), code)
            top = {"error_code": code, "error_message": SENTENCES[code]} if has_top else {}
            return self.response(**{self.answers: topics, **top})

        return refuse


class EachTopic(Check):
    """
    Topics are refused one by one.

    Args:
        unless: with this, all are allowed.
        has_group_error: whether the handler is asked in any case, because its answer may be an error of the group alone.
    """

    def __init__(
        self, shape: TopicShape, operation: Operation, unless: Need | None = None, *, has_group_error: bool = False
    ) -> None:
        self.shape = shape
        self._has_group_error = has_group_error
        self._operation = operation
        self._unless = unless
        self.needs = _alternatives(unless, Need(operation, ResourceType.TOPIC, shape.topics, "each"))

    def decide(self, request: Any, requester: Requester) -> Work[Decision | None]:
        shape = self.shape
        topics = getattr(request, shape.topics)
        if not topics:
            return None
        if self._unless is not None and self._unless.is_met(request, requester, logs_refusal=False):
            return None
        if len(topics) > HANDLER_STEP:
            return self._decide_many(request, requester)
        names = shape.few_names(topics, requester)
        known = [name for name in names if name is not None]
        allowed = requester.few_allowed(self._operation, ResourceType.TOPIC, known)
        return None if allowed.issuperset(known) else self._part(request, names, allowed)

    def _decide_many(self, request: Any, requester: Requester) -> Steps[Decision | None]:
        names = yield from self.shape.names(getattr(request, self.shape.topics), requester)
        known = [name for name in names if name is not None]
        allowed = yield from requester.allowed(self._operation, ResourceType.TOPIC, known)
        return None if allowed.issuperset(known) else (yield from self._part(request, names, allowed))

    def _part(self, request: Any, names: Sequence[str | None], allowed: Collection[str | None]) -> Steps[Decision]:
        """The part of a request that is allowed; the handler answers unknown ids."""
        shape = self.shape
        pairs = list(zip(getattr(request, shape.topics), names, strict=True))
        refusals = yield from shape.refused(
            [topic for topic, name in pairs if name is not None and name not in allowed],
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        kept = tuple([topic for topic, name in pairs if name is None or name in allowed])
        if not kept and not self._has_group_error:
            return Decision(answer=shape.response(**{shape.answers: refusals}))
        complete = adding(shape.answers, refusals)
        if self._has_group_error:
            return Decision(
                with_field(request, shape.topics, kept),
                lambda response: response if response.error_code else complete(response),
            )
        return Decision(with_field(request, shape.topics, kept), complete)


def adding(field: str, refusals: Sequence[Any]) -> Complete:
    """Add refused elements to a list of the answer."""

    def complete(response: Any) -> Any:
        return msgspec.structs.replace(response, **{field: [*getattr(response, field), *refusals]})

    return complete


class Each(Check):
    """
    Elements of one array are refused one by one.

    Args:
        field: of the request, with the elements.
        name: the field of an element with the name of the resource; empty if the element is the name.
        answers: the field of the response.
        answer_name: the field of its elements with the name.
        fields: of a refused element, beside its code.
    """

    def __init__(
        self,
        api: ApiKey,
        operation: Operation,
        resource_type: ResourceType,
        field: str,
        answers: str,
        answer_name: str,
        *,
        name: str = "",
        **fields: Any,
    ) -> None:
        self._response = response_class(api)
        self._element = element_class(api, answers)
        self._field = field
        self._name = name
        self._answers = answers
        self._answer_name = answer_name
        self._fields = fields
        self.needs = (Need(operation, resource_type, field, "each"),)

    def decide(self, request: Any, requester: Requester) -> Steps[Decision | None]:
        operation, resource_type, _, _ = self.needs[0]
        elements = getattr(request, self._field)
        names = elements
        if self._name:
            names = yield from gathered(getattr(element, self._name) for element in elements)
        allowed = yield from requester.allowed(operation, resource_type, names)
        refused = [name for name in names if name not in allowed]
        if not refused:
            return None
        code = int(REFUSALS[resource_type])
        refusals = yield from gathered(
            self._element(**{self._answer_name: name, "error_code": code, **self._fields}) for name in refused
        )
        if len(refused) == len(elements):
            return Decision(answer=self._response(**{self._answers: refusals}))
        kept = tuple([element for element, name in zip(elements, names, strict=True) if name in allowed])
        return Decision(with_field(request, self._field, kept), adding(self._answers, refusals))


class Shown(Check):
    """
    Elements of the answer are left out without an error.

    Args:
        answers, name: the field of the response, and of its elements with the name of the resource.
        unless: with this, all are shown.
    """

    def __init__(
        self,
        operation: Operation,
        resource_type: ResourceType,
        answers: str,
        name: str,
        unless: Need | None = None,
    ) -> None:
        self._answers = answers
        self._name = name
        self._unless = unless
        self.needs = _alternatives(unless, Need(operation, resource_type, detail="each, or it is not shown"))

    def decide(self, request: Any, requester: Requester) -> Decision | None:
        if self._unless is not None and self._unless.is_met(request, requester, logs_refusal=False):
            return None
        operation, resource_type, _, _ = self.needs[-1]

        def complete(response: Any) -> Steps[Any]:
            elements = getattr(response, self._answers)
            names = (getattr(element, self._name) for element in elements)
            allowed = yield from requester.allowed(operation, resource_type, names, logs_refusal=False)
            shown = [element for element in elements if getattr(element, self._name) in allowed]
            return msgspec.structs.replace(response, **{self._answers: shown})

        return Decision(request, complete)


class AuthorizedOperations(Check):
    """The answer says what the user may do to each resource of a list, if it was asked for."""

    def __init__(self, resource_type: ResourceType, answers: str, name: str, field: str) -> None:
        self._resource_type = resource_type
        self._answers = answers
        self._name = name
        self._field = field

    def decide(self, request: Any, requester: Requester) -> Decision:
        def complete(response: Any) -> Steps[Any]:
            found = []
            for number, element in enumerate(getattr(response, self._answers), 1):
                if getattr(element, self._field) != NO_OPERATIONS:
                    name = getattr(element, self._name)  # Of an unknown id there is none.
                    bits = NO_OPERATIONS if name is None else requester.operations(self._resource_type, name)
                    found.append(msgspec.structs.replace(element, **{self._field: bits}))
                else:
                    found.append(element)
                if number % OPERATIONS_STEP == 0:
                    yield
            return msgspec.structs.replace(response, **{self._answers: found})

        return Decision(request, complete)


OPERATIONS_STEP: Final = 25
"""Resources between two steps, each with up to eight decisions."""


class ClusterOperations(Check):
    """The answer says what the user may do to the cluster, if it was asked for; nothing without DESCRIBE."""

    needs = (at_cluster(Operation.DESCRIBE, "for the authorized operations"),)

    def decide(self, request: Any, requester: Requester) -> Decision | None:
        if not request.include_cluster_authorized_operations:
            return None
        bits = 0
        if requester.may_at_cluster(Operation.DESCRIBE):
            bits = requester.operations(ResourceType.CLUSTER, CLUSTER_NAME)

        def complete(response: Any) -> Any:
            return msgspec.structs.replace(response, cluster_authorized_operations=bits)

        return Decision(request, complete)
