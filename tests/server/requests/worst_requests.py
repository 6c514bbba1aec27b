"""
The worst requests of every API: what a row of the table of APIs bounds.

They are made from the schemas: the shortest request, the largest arrays (`largest_requests.py`), and each string at its longest
with contents that are expensive to parse. `requests_by_hand.py` adds requests that a schema does not tell.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.schema import Field
from kohort.wire.schema import message as schema_of
from tests.server.clients import Client
from tests.server.requests.largest_requests import Filler, Largest, StoredRequest, largest_requests, newest_version
from tests.server.requests.requests_by_hand import BY_HAND, stretched

CONTENTS = {"letters": "x", "elements": "a,", "classes": r"\pL", "groups": "(", "digits": "9"}


@dataclass(frozen=True)
class Longest:
    """A request with one string at its longest."""

    api: ApiKey
    path: tuple[str, ...]
    contents: str = "letters"

    def __str__(self) -> str:
        return f"{self.api.api_name} {'.'.join(self.path)} of {self.contents}"

    def frame(self) -> bytes:
        version = newest_version(self.api)
        return request_encoder(self.api, version)(1, "test", self.message(version))

    def message(self, version: int) -> Any:
        return _LongFiller(self, version).message()


def one_byte_longer(frame: bytes) -> bytes:
    """The frame of a request with one longest compact string, which is one byte longer than any encoder writes."""
    return stretched(frame, b"x" * STRING_BYTES_MAX, STRING_BYTES_MAX + 1)


class _LongFiller(Filler):
    def __init__(self, longest: Longest, version: int) -> None:
        super().__init__(Largest(longest.api, longest.path, is_distinct=False, elements=1), version)
        contents = CONTENTS[longest.contents]
        self.long = contents * (STRING_BYTES_MAX // len(contents))

    def value(self, field: Field, array: tuple[str, ...]) -> Any:
        if array != (field.name,):
            return super().value(field, array)
        return [self.long] if field.array else self.long


def strings(api: ApiKey, version: int | None = None) -> list[tuple[str, ...]]:
    """The paths of all strings in a version of a request, the newest served one unless stated."""
    schema = schema_of(f"{api.api_name}Request")
    version = newest_version(api) if version is None else version

    def within(struct: str) -> Iterator[tuple[str, ...]]:
        for field in schema.fields(struct, version):
            if field.type == "string":
                yield (field.name,)
            elif field.type in schema.structs:
                for path in within(field.type):
                    yield (field.name, *path)

    return list(within(schema.name))


async def worst_requests(
    api: ApiKey, client: Client, elements: int
) -> AsyncIterator[Largest | Longest | StoredRequest]:
    """
    Args:
        client: of the node that gets the requests; some need what others have left there.
        elements: of the largest arrays.
    """
    yield Largest(api, (), is_distinct=False, elements=0)
    for largest in largest_requests(api, elements):
        yield largest
    for path in strings(api):
        for contents in CONTENTS:
            yield Longest(api, path, contents)
    if api in BY_HAND:
        async for stored in BY_HAND[api](client):
            yield stored
