"""
Structs and their JSON form without native code: the part of msgspec that schemas and values of records need, by its names.

Values are converted to the annotated types, but not checked. Structs are not protected from changes.
"""

import json as _json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, ClassVar, Union, dataclass_transform, get_args, get_origin, get_type_hints


class MsgspecError(ValueError):
    """The JSON is malformed, or does not fit the type."""


class Raw:
    """A part of a JSON document that is converted later."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass_transform()
class Struct:
    """A class with typed fields."""

    __struct_fields__: ClassVar[tuple[str, ...]] = ()
    __is_array__: ClassVar[bool] = False

    def __init_subclass__(cls, *, kw_only: bool = False, array_like: bool = False, **_native: bool) -> None:
        """
        Args:
            array_like: the JSON form is an array.
        """
        dataclass(unsafe_hash=True, kw_only=kw_only)(cls)
        cls.__is_array__ = array_like
        cls.__struct_fields__ = tuple(one.name for one in fields(cls))  # type: ignore[arg-type]


def defstruct(
    name: str, fields: Iterable[tuple[Any, ...]], *, module: str, kw_only: bool = False, **_native: bool
) -> type[Struct]:
    """Make a class of fields: name, type and perhaps a default."""
    listed = [(name, kind, *(field(default=value) for value in default)) for name, kind, *default in fields]
    made = make_dataclass(name, listed, unsafe_hash=True, kw_only=kw_only)
    made.__module__ = module
    made.__struct_fields__ = tuple(one[0] for one in listed)  # type: ignore[attr-defined]
    return made


def _decoded(data: Any, *, type: Any) -> Any:  # noqa: A002  (msgspec's name)
    """Convert a JSON document, or a part of one."""
    try:
        return _converted(data.value if isinstance(data, Raw) else _json.loads(bytes(data)), type)
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise MsgspecError(str(exc)) from exc


json = SimpleNamespace(decode=_decoded)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _converted(value: Any, kind: Any) -> Any:
    if kind is Raw:
        return Raw(value)
    arguments, origin = get_args(kind), get_origin(kind)
    if origin in {Union, UnionType}:
        return None if value is None else _converted(value, next(one for one in arguments if one is not NoneType))
    if origin is dict:
        return {arguments[0](name): _converted(one, arguments[1]) for name, one in value.items()}
    if origin is tuple:
        of_all = arguments[-1] is Ellipsis
        kinds = arguments[:1] * len(value) if of_all else arguments
        return tuple(_converted(one, its) for one, its in zip(value, kinds, strict=True))
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return value
    hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]
    if kind.__is_array__:
        value = dict(zip(kind.__struct_fields__, value, strict=False))
    return kind(**{name: _converted(one, hints[name]) for name, one in value.items() if name in hints})
