"""Types as PySpark writes them (`array<struct<a:int>>`), in DuckDB's words."""

import json
import re
from collections.abc import Iterator
from typing import Any

_SIMPLE = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "smallint": "SMALLINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
}
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[<>:,]")


def sql_type(text: str) -> str:
    """Return the type in DuckDB's SQL."""
    return _as_sql(_parsed(text))


def json_structure(text: str) -> str:
    """Return the structure for DuckDB's `from_json`."""
    return json.dumps(_as_structure(_parsed(text)))


def _parsed(text: str) -> Any:
    """Return a name, a list with one type (an array), or a dict of types (a struct)."""
    tokens = iter(_TOKEN.findall(text))
    return _read(next(tokens), tokens)


def _read(name: str, tokens: Iterator[str]) -> Any:
    if name == "array":
        next(tokens)
        element = [_read(next(tokens), tokens)]
        next(tokens)
        return element
    if name != "struct":
        return _SIMPLE[name]
    fields: dict[str, Any] = {}
    while next(tokens) != ">":
        field = next(tokens)
        next(tokens)
        fields[field] = _read(next(tokens), tokens)
    return fields


def _as_sql(parsed: Any) -> str:
    if isinstance(parsed, list):
        return f"{_as_sql(parsed[0])}[]"
    if isinstance(parsed, dict):
        return "STRUCT(" + ", ".join(f'"{name}" {_as_sql(one)}' for name, one in parsed.items()) + ")"
    return str(parsed)


def _as_structure(parsed: Any) -> Any:
    if isinstance(parsed, list):
        return [_as_structure(parsed[0])]
    if isinstance(parsed, dict):
        return {name: _as_structure(one) for name, one in parsed.items()}
    return parsed
