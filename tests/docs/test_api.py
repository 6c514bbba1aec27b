"""
docs/api.md names the packages with public names; each of them has `__all__`, and every name in it exists. Pages and examples
import no other names.
"""

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from kohort.testing import plugin

ROOT = Path(__file__).parents[2]
API = (ROOT / "docs" / "api.md").read_text()
PACKAGES = re.findall(r"`(kohort(?:_lab)?\.[\w.]+)\.__all__`", API)
MODULES = {"kohort.machine.bulk", "kohort.model.errors", "kohort.model.ids"}
"""Modules that docs/api.md and docs/runtime.md call public."""
SOURCES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.*"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist(package: str) -> None:
    found = import_module(package)
    assert len(set(found.__all__)) == len(found.__all__) > 0
    missing = [name for name in found.__all__ if not hasattr(found, name) and find_spec(f"{package}.{name}") is None]
    assert missing == []


def test_the_fixtures_of_the_plugin_are_named() -> None:
    named = set(re.findall(r"`(kohort(?:_\w+)?)`", re.findall(r"public fixtures (.*?)\.", API, re.DOTALL)[0]))
    assert named == {
        name for name, found in vars(plugin).items() if type(found).__name__ == "FixtureFunctionDefinition"
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_examples_import_public_names(path: Path) -> None:
    internal = [
        f"from {module} import {name}"
        for program in programs(path)
        for module, name in imported(ast.parse(program))
        if module.split(".")[0] == "kohort" and not is_public(module, name)
    ]
    assert internal == []


def programs(path: Path) -> list[str]:
    """The Python of a page, a notebook or a module."""
    if path.suffix == ".md":
        found = re.findall(r"^( *)```python[^\n]*\n(.*?)^\1```$", path.read_text(), re.MULTILINE | re.DOTALL)
        return [textwrap.dedent(body) for _, body in found]
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [path.read_text()] if path.suffix == ".py" else []


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""


def is_public(module: str, name: str) -> bool:
    if module in MODULES or f"{module}.{name}" in MODULES:
        return True
    if module in PACKAGES:
        return name in ("", *import_module(module).__all__)
    package, _, last = module.rpartition(".")
    return package in PACKAGES and last in import_module(package).__all__ and not name.startswith("_")
