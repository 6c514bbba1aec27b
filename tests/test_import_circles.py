"""The check for circles of imports, which `make lint` runs over the whole package."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(*sources: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "import_circles.py"), *map(str, sources)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(source: Path, **modules: str) -> Path:
    package = source / "house"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    return source


def test_package_and_laboratory_have_no_circles() -> None:
    checked = check(ROOT / "src", ROOT / "lab")
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.endswith(" 0 circles of imports\n")


def test_a_circle_is_shown_with_its_lines_wherever_the_imports_are(tmp_path: Path) -> None:
    write(
        tmp_path,
        one="import json\nfrom house import two\n",
        two="from house.three import name\n",
        three="def late():\n    import house.one\n    name = 1\n",
        four="from house.one import json\n",
    )
    checked = check(tmp_path)
    assert checked.returncode == 1
    lines = [line.removeprefix(f"  {tmp_path}/") for line in checked.stdout.splitlines()]
    assert lines == [
        "circle of imports:",
        "house/one.py:2 imports house.two",
        "house/three.py:2 imports house.one",
        "house/two.py:1 imports house.three",
        "5 modules, 1 circles of imports",
    ]


def test_an_import_for_types_counts_and_so_does_a_late_import_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        one="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house import two\n",
        two="from importlib import import_module\nimport_module('house.one')\n",
    )
    checked = check(tmp_path)
    assert checked.returncode == 1
    lines = [line.removeprefix(f"  {tmp_path}/") for line in checked.stdout.splitlines()]
    assert lines[1:3] == ["house/one.py:3 imports house.two", "house/two.py:2 imports house.one"]
