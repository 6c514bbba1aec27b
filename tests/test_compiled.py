"""The compiled build contains all modules that pyproject.toml lists, and no others."""

import ast
import tomllib
from importlib.util import find_spec
from pathlib import Path

from kohort.compiled import is_compiled

ROOT = Path(__file__).parents[1]


def listed() -> list[str]:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    found: list[str] = targets["wheel"]["hooks"]["custom"]["include"]
    return found


def test_what_is_listed_is_there() -> None:
    assert listed() == list(dict.fromkeys(listed()))
    assert [path for path in listed() if not (ROOT / path).is_file()] == []


def test_all_of_it_is_compiled_or_nothing() -> None:
    origins = [find_spec(path.removeprefix("src/").removesuffix(".py").replace("/", ".")) for path in listed()]
    assert {found is not None and not (found.origin or "").endswith(".py") for found in origins} == {is_compiled()}


def test_no_protocol_is_checked_at_run_time() -> None:
    """A protocol that mypyc compiled is no `typing.Protocol`: its decoration raises TypeError when the module is imported."""
    assert [path for path in listed() if "runtime_checkable" in (ROOT / path).read_text()] == []


def test_constants_are_final() -> None:
    """A constant that is not Final is looked up by name at each use."""
    loose = [
        f"{path}: {target.id}"
        for path in listed()
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.UnaryOp)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert loose == []


def test_no_dataclass_has_a_class_variable() -> None:
    """mypyc takes a ClassVar of a dataclass for a field with a default."""
    found = [
        f"{path}: {node.name}"
        for path in listed()
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        and any(isinstance(field, ast.AnnAssign) and "ClassVar" in ast.unparse(field.annotation) for field in node.body)
    ]
    assert found == []


def test_no_generator_waits_while_it_handles_an_exception() -> None:
    """mypyc generators share the handled exception of their thread: one that is closed in an `except` clause corrupts it."""
    handlers = [
        (path, node.body if isinstance(node, ast.ExceptHandler) else node.finalbody)
        for path in listed()
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ExceptHandler | ast.Try)
    ]
    found = [
        f"{path}:{node.lineno}"
        for path, body in handlers
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Yield | ast.YieldFrom)
    ]
    assert found == []
