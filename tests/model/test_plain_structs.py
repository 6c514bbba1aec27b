"""Structs without msgspec: all schemas, messages and records are the same as with it."""

import json
import subprocess
import sys
from typing import Any

import pytest

from kohort.model.plain_structs import MsgspecError, Struct
from kohort.model.plain_structs import json as plain_json
from tests.conftest import watches_calls

CODE = """
import sys
if sys.argv[1] == "plain":
    sys.modules["msgspec"] = None
import json
from kohort.model.structs import msgspec
from kohort.records.schema import protocols, struct_owners
from kohort.records.value_classes import is_required, record_classes, value_class
from kohort.wire import apis, messages
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import message, message_names

def told(value):
    names = getattr(value, "__struct_fields__", None)
    if names is not None and not isinstance(value, type):
        return {name: told(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: told(one) for name, one in value.items()}
    return [told(one) for one in value] if isinstance(value, (list, tuple)) else repr(value)

print(msgspec.__name__)
found = {name: told(message(name)) for name in message_names()}
found |= {f"protocol {name}": told(one) for name, one in protocols().items()}
found |= {f"default of {name}": told(message_classes(name)[name]()) for name in message_names()}
for name, record in struct_owners().items():
    found[f"record {name}"] = told(record)
    found[f"class {name}"] = list(record_classes(record)[name].__struct_fields__)
found["apis"] = {api.name: [api.oldest, api.newest, api.newest_stable, api.flexible_from] for api in apis.ApiKey}
print(json.dumps(found, sort_keys=True))
"""


class Nested(Struct, frozen=True, array_like=True):
    oldest: int
    newest: int


class Whole(Struct, frozen=True, kw_only=True):
    first: int = 0
    name: str
    nested: Nested | None = None


def schemas(kind: str) -> tuple[str, dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", CODE, kind], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    module, found = done.stdout.splitlines()
    return module, json.loads(found)


@watches_calls
def test_schemas_and_classes_are_those_of_msgspec() -> None:
    module, plain = schemas("plain")
    assert module == "kohort.model.plain_structs"
    module, native = schemas("native")
    assert module == "msgspec"
    assert len(native) > 400
    assert plain == native


def test_structs_are_equal_by_value() -> None:
    text = b'{"name": "x", "nested": [1, 2], "more": 5}'
    found = plain_json.decode(text, type=Whole)
    assert found == Whole(name="x", nested=Nested(1, 2))
    assert len({found, plain_json.decode(text, type=Whole)}) == 1
    assert found != Whole(name="x")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"name": "x", "nested": 3}', '{"name": "x", "nested": [1]}'])
def test_what_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(MsgspecError):
        plain_json.decode(text.encode(), type=Whole)
