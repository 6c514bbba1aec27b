"""
Where the requests of an API name groups, topics and partitions, and where its answers have the error codes of these.

Both are found in the schemas: an array of a request belongs to the array of the answer that has an error code for each of its
elements. A table has the few names that the schemas do not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from kohort.broker.apis.request_rules import with_field
from kohort.model.errors import ErrorCode
from kohort.wire.apis import ApiKey
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import Field, Message, message

Facts: TypeAlias = Mapping[str, Any]
"""The names in a request or in an element of it, by the words of filters: group, topic, partition, ..."""
Matches: TypeAlias = Callable[[Facts], bool | None]
"""Whether a filter matches facts; None if a fact that it needs is still missing."""

CODES: Final = ("error_code", "partition_error_code")
_MESSAGES: Final = ("error_message",)
_WORDS: Final = {
    "group_id": "group",
    "member_id": "member",
    "transactional_id": "transactional_id",
    "v3_and_below_transactional_id": "transactional_id",
    "producer_id": "producer_id",
    "v3_and_below_producer_id": "producer_id",
    "topic_id": "topic_id",
    "topic": "topic",
    "topic_name": "topic",
    "index": "partition",
    "partition": "partition",
    "partition_index": "partition",
    "partition_id": "partition",
    "resource_name": "resource",
    "resource_name_filter": "resource",
    "user": "resource",
    "feature": "resource",
}
"""The words of the fields that name something."""
_ARRAYS: Final = {
    "groups": "group",
    "group_ids": "group",
    "groups_names": "group",
    "topic_names": "topic",
    "transactional_ids": "transactional_id",
    "partitions": "partition",
    "partition_indexes": "partition",
    "coordinator_keys": "key",
}
"""The words of the elements of arrays of plain values."""
_TOPIC_ARRAYS: Final = frozenset({"topics", "topic_data", "responses", "topic_results", "v3_and_below_topics"})
"""Arrays whose elements have the topic in a field `name`."""
_NOT_ELEMENTS: Final = frozenset({"forgotten_topics_data", "configs", "assignments", "acknowledgement_batches"})
_PAIRS: Final = {
    ("topic_data", "responses"),
    ("partition_data", "partition_responses"),
    ("topics", "responses"),
    ("topics", "results"),
    ("topic_names", "responses"),
    ("partition_indexes", "partitions"),
    ("group_ids", "groups"),
    ("groups_names", "results"),
    ("coordinator_keys", "coordinators"),
    ("transactions", "results_by_transaction"),
    ("topics", "topic_results"),
    ("v3_and_below_topics", "results_by_topic_v3_and_below"),
    ("partitions", "results_by_partition"),
    ("creations", "results"),
    ("filters", "filter_results"),
    ("resources", "results"),
    ("resources", "responses"),
    ("topic_partitions", "replica_election_results"),
    ("partitions", "partition_result"),
    ("transactional_ids", "transaction_states"),
    ("users", "results"),
    ("feature_updates", "results"),
    ("deletions", "results"),
    ("upsertions", "results"),
}
"""Arrays of a request and of its answer that have the same elements under two names."""
_THROUGH: Final = {ApiKey.ALTER_REPLICA_LOG_DIRS: "dirs"}
"""The array whose elements have the arrays that the answer has."""
KEPT: Final = frozenset(
    {
        *_WORDS,
        "key",
        "name",
        "resource_type",
        "group_instance_id",
        "is_internal",
        "replica_nodes",
        "isr_nodes",
        "log_dir",
    }
) - {"producer_id"}
"""Fields that name what has the error; they stay in the answer."""
OF_ELEMENTS: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.INVALID_RECORD,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    }
)
"""Codes of topics and partitions: an answer has them at the deepest place. It has all others at the highest."""


class Child(msgspec.Struct, frozen=True, gc=False):
    """
    An array of a request, and the array of the answer that has a code for each element.

    Attributes:
        through: the array of the request in whose elements the array is; empty if the request has it itself.
        field: of the request.
        answers: the field of the answer.
        word: of the elements, if they are plain values; "" otherwise.
    """

    through: str
    field: str
    answers: str
    word: str
    place: Place

    def elements(self, parent: Any) -> Sequence[Any]:
        if not self.through:
            return getattr(parent, self.field) or ()
        return [each for outer in getattr(parent, self.through) or () for each in getattr(outer, self.field) or ()]

    def with_elements(self, parent: Any, kept: Sequence[Any]) -> Any:
        """The parent with some of its elements."""
        if not self.through:
            return with_field(parent, self.field, kept)
        outers = []
        for outer in getattr(parent, self.through):
            own = [each for each in getattr(outer, self.field) if any(each is some for some in kept)]
            outers.append(with_field(outer, self.field, own))
        return with_field(parent, self.through, outers)


class Place(msgspec.Struct, frozen=True, gc=False):
    """
    A struct of a request, and the struct of the answer to it.

    Attributes:
        words: of the fields of the request's struct: (word, field).
        code, message: fields of the answer; "" if it has none.
        answer: the class of the answer.
        kept: (field of the answer, field of the request) of what names the element; the request's is "" for a plain value.
        children: arrays with codes below.
    """

    words: tuple[tuple[str, str], ...]
    code: str
    message: str
    answer: type[msgspec.Struct]
    kept: tuple[tuple[str, str], ...]
    children: tuple[Child, ...]


class AnswerPlace(msgspec.Struct, frozen=True, gc=False):
    """A struct of an answer: its words, its code and the arrays with codes below."""

    words: tuple[tuple[str, str], ...]
    code: str
    message: str
    children: tuple[tuple[str, AnswerPlace], ...]


# -- from the schemas --------------------------------------------------------------------------------------------


def _words(fields: Sequence[Field], array: str, api: ApiKey) -> tuple[tuple[str, str], ...]:
    found = []
    for field in fields:
        if field.array:
            continue
        word = _WORDS.get(field.name)
        if field.name == "name":
            word = _word_of_name(array, api)
        elif field.name == "key" and api is ApiKey.FIND_COORDINATOR:
            word = "key"
        if word is not None:
            found.append((word, field.name))
    return tuple(found)


def _word_of_name(array: str, api: ApiKey) -> str | None:
    if array in _TOPIC_ARRAYS or (array == "results" and api is ApiKey.CREATE_PARTITIONS):
        return "topic"
    if array in ("users", "deletions", "upsertions"):
        return "resource"
    return None


def _code(fields: Sequence[Field]) -> str:
    return next((field.name for field in fields if field.name in CODES), "")


def _message(fields: Sequence[Field]) -> str:
    return next((field.name for field in fields if field.name in _MESSAGES), "")


def _has_codes(schema: Message, struct: str, version: int) -> bool:
    fields = schema.fields(struct, version)
    return bool(_code(fields)) or any(
        field.array and field.type in schema.structs and _has_codes(schema, field.type, version) for field in fields
    )


class _Builder:
    """Finds the places of one version of one API."""

    def __init__(self, api: ApiKey, version: int) -> None:
        self._api = api
        self._version = version
        self._request = message(f"{api.api_name}Request")
        self._answer = message(f"{api.api_name}Response")
        self._classes = message_classes(self._answer.name)

    def place(self) -> Place:
        return self._place(self._request.name, self._answer.name, "")

    def _place(self, asked: str, answered: str, array: str) -> Place:
        fields = self._request.fields(asked, self._version)
        answers = self._answer.fields(answered, self._version)
        words = _words(fields, array, self._api)
        return Place(
            words,
            _code(answers),
            _message(answers),
            self._classes[answered],
            self._kept(dict(words), answers, {field.name for field in fields}, array) if array else (),
            tuple(self._children(asked, answered)),
        )

    def _kept(
        self, words: Mapping[str, str], answers: Sequence[Field], names: set[str], array: str
    ) -> tuple[tuple[str, str], ...]:
        kept = []
        for word, field in _words(answers, array if array in _TOPIC_ARRAYS else "topics", self._api):
            if word in words:
                kept.append((field, words[word]))
        known = {field for field, _ in kept}
        kept += [
            (field.name, field.name)
            for field in answers
            if field.name in names and field.name in KEPT and field.name not in known
        ]
        if self._api is ApiKey.ALTER_CLIENT_QUOTAS:
            kept.append(("entity", "entity"))
        return tuple(kept)

    def _plain(self, word: str, answered: str) -> Place:
        answers = self._answer.fields(answered, self._version)
        named = [field for found, field in _words(answers, "topics", self._api) if found == word]
        return Place(
            ((word, ""),),
            _code(answers),
            _message(answers),
            self._classes[answered],
            tuple((field, "") for field in named[:1]),
            (),
        )

    def _children(self, asked: str, answered: str) -> Iterator[Child]:
        through = _THROUGH.get(self._api, "") if asked == self._request.name else ""
        owner = asked
        if through:
            owner = next(field.type for field in self._request.structs[asked] if field.name == through)
        arrays = [
            field
            for field in self._request.fields(owner, self._version)
            if field.array and field.name not in _NOT_ELEMENTS
        ]
        for answer in self._answer.fields(answered, self._version):
            if not answer.array or answer.type not in self._answer.structs:
                continue
            if not _has_codes(self._answer, answer.type, self._version):
                continue
            for field in arrays:
                if self._api is ApiKey.DESCRIBE_LOG_DIRS:  # Its results are directories.
                    break
                if field.name != answer.name and (field.name, answer.name) not in _PAIRS:
                    continue
                if field.type in self._request.structs:
                    place = self._place(field.type, answer.type, field.name)
                    yield Child(through, field.name, answer.name, "", place)
                elif field.name in _ARRAYS:
                    word = _ARRAYS[field.name]
                    yield Child(through, field.name, answer.name, word, self._plain(word, answer.type))

    def answer(self) -> AnswerPlace:
        return self._answer_place(self._answer.name, "")

    def _answer_place(self, struct: str, array: str) -> AnswerPlace:
        fields = self._answer.fields(struct, self._version)
        children = tuple(
            (field.name, self._answer_place(field.type, field.name))
            for field in fields
            if field.array
            and field.type in self._answer.structs
            and _has_codes(self._answer, field.type, self._version)
        )
        # At the top, names are those of the answer itself, such as the member id that a JoinGroup assigns.
        words = _words(fields, array, self._api) if array else ()
        return AnswerPlace(words, _code(fields), _message(fields), children)


@cache
def place_of(api: ApiKey, version: int) -> Place:
    """The places of the requests of one version."""
    return _Builder(api, version).place()


@cache
def answer_place_of(api: ApiKey, version: int) -> AnswerPlace:
    """The places of the answers of one version."""
    return _Builder(api, version).answer()
