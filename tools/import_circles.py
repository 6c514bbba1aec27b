"""
Find circles of imports between the modules of source folders: `python tools/import_circles.py src lab`.

Every import of the source counts, also one inside a function, those for types, and `import_module` of a name that stands in the
source. An import of a package is an import of its `__init__`. Exits with 1 if there is a circle, and prints its modules with
the lines of the imports.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

Imports: TypeAlias = dict[str, dict[str, int]]
"""By module: the modules it imports, with the line of the import."""


def find_modules(source: Path) -> dict[str, Path]:
    """The modules below a source folder by their dotted names."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def _imports_of(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """The lines of the imports, and the modules or members of modules that they name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield node.lineno, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in (
            getattr(node.func, "id", None),
            getattr(node.func, "attr", None),
        ):
            yield (
                node.lineno,
                [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)],
            )


def read_imports(modules: dict[str, Path]) -> Imports:
    """The imports among the modules themselves."""
    imports: Imports = {}
    for name, path in modules.items():
        found = imports[name] = {}
        for line, targets in _imports_of(ast.parse(path.read_text())):
            for target in targets:
                while target and target not in modules:
                    target = target.rpartition(".")[0]
                if target and target != name:
                    found.setdefault(target, line)
    return imports


def find_circles(imports: Imports) -> list[list[str]]:
    """The strongly connected components of two modules or more. Source: Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in imports[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            circle = stack[at:]
            del stack[at:]
            if len(circle) > 1:
                circles.append(sorted(circle))

    for name in imports:
        if name not in index:
            visit(name)
    return circles


def main(sources: Sequence[str]) -> int:
    modules = {name: path for source in sources for name, path in find_modules(Path(source)).items()}
    imports = read_imports(modules)
    circles = find_circles(imports)
    for circle in circles:
        print("circle of imports:")
        for name in circle:
            for target, line in imports[name].items():
                if target in circle:
                    print(f"  {modules[name]}:{line} imports {target}")
    print(f"{len(modules)} modules, {len(circles)} circles of imports")
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src", "lab"]))
