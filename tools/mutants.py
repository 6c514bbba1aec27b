"""
Mutation tests: `python tools/mutants.py [NAME ...]`.

A mutant is a small defect: a text of a source file and its replacement. Each file `tools/mutants/ROOM.toml` has a list of them:

    [[mutant]]
    file = "src/kohort/storage/producers.py"
    old = "text that occurs exactly once in the file"
    new = "text with the defect"
    kills = "tests/storage/test_producers.py::test_name"     # arguments of pytest; several as a list, or with spaces

Each mutant is applied to a copy of the repository, and its tests are run there. The command fails if the tests pass (the mutant
survives), if they fail on the unchanged copy, or if `old` does not occur exactly once. NAME selects mutants whose list or file
contains it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LISTS = ROOT / "tools" / "mutants"
COPIED = (
    "pyproject.toml",
    "src",
    "lab",
    "tests",
    "conformance",
    "bench",
    "examples",
    "docs",
    "tools",
    "README.md",
    "Makefile",
)
TIMEOUT_S = 600.0
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest. Any other code, such as for a test that does not exist, says nothing about the mutant."""


@dataclass(frozen=True)
class Mutant:
    """One entry of a list."""

    room: str
    file: str
    old: str
    new: str
    kills: tuple[str, ...]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old[:60]} -> {new[:60] or '(nothing)'}"


def mutants(names: Sequence[str] = (), lists: Path = LISTS) -> Iterator[Mutant]:
    """The mutants of all lists, or those whose list or file contains one of the names."""
    for path in sorted(lists.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            mutant = _mutant(path.stem, entry)
            if not names or any(name in (path.stem, mutant.file) or name in mutant.file for name in names):
                yield mutant


def _mutant(room: str, entry: dict[str, Any]) -> Mutant:
    kills = entry["kills"]
    return Mutant(
        room=room,
        file=entry["file"],
        old=entry["old"],
        new=entry["new"],
        kills=tuple(kills.split()) if isinstance(kills, str) else tuple(kills),
    )


def problem(root: Path, mutant: Mutant) -> str:
    """Why a mutant cannot be applied; empty if it can."""
    path = root / mutant.file
    if not path.is_file():
        return "the file does not exist"
    count = path.read_text().count(mutant.old)
    if count != 1:
        return f"the text to replace occurs {count} times"
    return "" if mutant.old != mutant.new else "old and new are the same"


def run_tests(root: Path, tests: Sequence[str]) -> int:
    """Run tests in a copy and return pytest's exit code. A test that hangs has failed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root / "lab"))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("CI", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", str(TIMEOUT_S / 2), *tests]
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return _FAILED
    if process.returncode not in (_PASSED, _FAILED):
        print(output[-2000:])
    return process.returncode


def verdict(root: Path, mutant: Mutant, passing: set[tuple[str, ...]]) -> str:
    """
    Apply a mutant, run its tests, and restore the file. Return the error; empty if the tests kill the mutant.

    Args:
        passing: tests that passed on the unchanged copy.
    """
    why = problem(root, mutant)
    if why:
        return why
    if mutant.kills not in passing:
        if run_tests(root, mutant.kills) != _PASSED:
            return f"{' '.join(mutant.kills)} does not pass without the mutant"
        passing.add(mutant.kills)
    path = root / mutant.file
    original = path.read_text()
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        code = run_tests(root, mutant.kills)
    finally:
        path.write_text(original)
    if code == _PASSED:
        return f"survives {' '.join(mutant.kills)}"
    return "" if code == _FAILED else f"pytest ended with exit code {code}"


def copy_tree(root: Path) -> None:
    """Copy the repository without build products."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "local-*"))
        elif source.exists():
            shutil.copy(source, root / name)
    if (ROOT / "build").is_dir():  # Apache Kafka's jars
        (root / "build").symlink_to(ROOT / "build")


def main(arguments: Sequence[str]) -> int:
    """Run the mutants. The exit code is 1 if one is not killed."""
    parser = argparse.ArgumentParser(
        prog="tools/mutants.py", description="Run the mutation tests of tools/mutants/*.toml."
    )
    parser.add_argument("names", nargs="*", help="lists or source files; default: all")
    parser.add_argument("--check", action="store_true", help="only check that each mutant can be applied; runs no test")
    parsed = parser.parse_args(arguments)
    chosen = list(mutants(parsed.names))
    if not chosen:
        print(f"no mutant of {', '.join(parsed.names)}", file=sys.stderr)
        return 2
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        root = ROOT if parsed.check else Path(directory)
        if not parsed.check:
            copy_tree(root)
        passing: set[tuple[str, ...]] = set()
        for mutant in chosen:
            began = time.monotonic()
            error = problem(root, mutant) if parsed.check else verdict(root, mutant, passing)
            if error:
                errors.append(f"{mutant.room}: {mutant}: {error}")
            if error or not parsed.check:
                print(
                    f"{'ERROR' if error else 'killed'} {time.monotonic() - began:5.1f} s  {mutant}  {error}", flush=True
                )
    print(f"{len(chosen)} mutants, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
