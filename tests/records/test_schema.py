"""The schemas: equal to those of Kafka's classes, field for field, and the stub file that is made of them."""

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

from kohort.records import values
from kohort.records.json_form import json_name
from kohort.records.schema import RecordType, record_types, struct_owners
from kohort.records.value_classes import record_classes
from kohort.wire.schema import Field, Message
from tests.records.golden import kafka_schemas

ROOT = Path(__file__).parents[2]
PACKAGES = {"group": "__consumer_offsets", "transaction": "__transaction_state", "share": "__share_group_state"}


def kafka_type(field: Field, message: Message, version: int) -> Any:
    """A field of ours in the form of Kafka's schemas."""
    is_flexible = message.is_flexible(version)
    if field.type in message.structs:
        element: Any = kafka_fields(field.type, message, version)
    else:
        element = field.type.upper()
        if field.type in ("string", "bytes"):
            is_nullable = field.is_nullable(version) and not field.array
            element = f"{'COMPACT_' * is_flexible}{'NULLABLE_' * is_nullable}{element}"
    if not field.array:
        return element
    return {
        "array": element,
        "kind": "CompactArrayOf" if is_flexible else "ArrayOf",
        "nullable": field.is_nullable(version),
    }


def kafka_fields(struct: str, message: Message, version: int) -> list[Any]:
    fields = message.fields(struct, version)
    found: list[Any] = [
        {"name": json_name(field), "type": kafka_type(field, message, version)} for field in fields if field.tag is None
    ]
    if message.is_flexible(version):
        tagged = [
            {"tag": field.tag, "name": json_name(field), "type": kafka_type(field, message, version)}
            for field in fields
            if field.tag is not None
        ]
        found.append({"name": "_tagged_fields", "type": {"tagged": tagged}})
    return found


def in_camel_case(schema: Any) -> Any:
    """A schema of Kafka's with its names as its JSON definitions have them."""
    if isinstance(schema, list):
        return [in_camel_case(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: in_camel_case(value) for key, value in schema.items()}
    if "name" in found and found["name"] != "_tagged_fields":
        first, *others = found["name"].split("_")
        found["name"] = first + "".join(other.capitalize() for other in others)
    return found


def test_the_types_are_kafkas() -> None:
    kafkas = {
        (PACKAGES[schema["package"]], schema["key_type"], name.removesuffix("Key"))
        for name, schema in kafka_schemas().items()
        if name.endswith("Key")
    }
    assert {(found.topic, found.key_type, found.name) for found in record_types().values()} == kafkas


@pytest.mark.parametrize("found", record_types().values(), ids=lambda found: found.name)
def test_keys_and_values_have_kafkas_fields(found: RecordType) -> None:
    key = kafka_schemas()[f"{found.name}Key"]["versions"]
    assert {"0": kafka_fields(f"{found.name}Key", found.key_message, 0)} == in_camel_case(key)
    value = kafka_schemas()[f"{found.name}Value"]["versions"]
    ours = {
        str(version): kafka_fields(found.name, found.value_message, version)
        for version in range(found.versions[0], found.versions[1] + 1)
    }
    assert ours == in_camel_case(value)


def test_the_stub_file_is_up_to_date() -> None:
    """To refresh it: .venv/bin/python tools/record_stubs.py"""
    tool = runpy.run_path(str(ROOT / "tools/record_stubs.py"))
    assert tool["STUBS"].read_bytes() == tool["generate"]()


def test_type_checkers_see_the_fields_in_their_order() -> None:
    stubs = ast.parse((ROOT / "src/kohort/records/values.pyi").read_text())
    seen = {
        node.name: tuple(
            line.target.id
            for line in node.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        )
        for node in stubs.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("ConsumerProtocol")
    }
    built = {name: made for found in record_types().values() for name, made in record_classes(found).items()}
    assert {name: made.__struct_fields__ for name, made in built.items()} == seen
    assert set(built) == set(struct_owners())
    for name, made in built.items():
        assert getattr(values, name) is made


def test_a_name_that_is_no_record() -> None:
    with pytest.raises(AttributeError):
        _ = values.NoRecord  # type: ignore[attr-defined]
