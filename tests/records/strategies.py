"""Generated coordinator records of any type, in the fields of one version of their value."""

from typing import Any

from hypothesis import strategies as st

from kohort.records.schema import RecordType
from kohort.records.value_classes import record_classes
from kohort.wire.schema import FIXED_FORMATS, FIXED_WIDTHS, Field

TEXT = st.text(max_size=12)


def values_of(field: Field, record_type: RecordType, version: int) -> st.SearchStrategy[Any]:
    made: st.SearchStrategy[Any]
    if field.type in record_type.structs:
        made = st.deferred(lambda: structs_of(field.type, record_type, version))
    elif field.type in FIXED_FORMATS:
        bits = 8 * FIXED_WIDTHS[field.type]
        is_signed = field.type.startswith("int")
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        made = st.integers(low, high)
    elif field.type == "uuid":
        made = st.none() | st.uuids().filter(lambda uuid: uuid.int != 0)
    else:
        made = TEXT if field.type == "string" else st.binary(max_size=12)
    if field.array:
        made = st.lists(made, max_size=3).map(tuple)
    return st.none() | made if field.is_nullable(version) else made


def structs_of(struct: str, record_type: RecordType, version: int) -> st.SearchStrategy[Any]:
    fields = record_type.structs[struct]
    if struct == record_type.name:
        fields = (*record_type.key, *fields)
    present = [field for field in fields if field.is_in(version)]
    defaults = {field.name: field.default for field in fields if not field.is_in(version)}
    made = record_classes(record_type)[struct]
    return st.builds(
        made,
        **{field.name: values_of(field, record_type, version) for field in present},
        **{name: st.just(value) for name, value in defaults.items()},
    )


def records_of(record_type: RecordType, version: int) -> st.SearchStrategy[Any]:
    return structs_of(record_type.name, record_type, version)


def tombstones_of(record_type: RecordType) -> st.SearchStrategy[Any]:
    made = record_classes(record_type)[record_type.tombstone_name]
    return st.builds(made, **{field.name: values_of(field, record_type, 0) for field in record_type.key})
