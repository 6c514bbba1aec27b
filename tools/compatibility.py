"""
Generates docs/compatibility.md from `compatibility.toml`, the locked versions, and the calls of the tools' tests.

    python tools/compatibility.py

`--check` writes nothing and fails if the page is not up to date; the test suite does the same.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
FACTS = Path(__file__).with_suffix(".toml")
_MAVEN = "{http://maven.apache.org/POM/4.0.0}"
_CALL = re.compile(r'Call\(\s*f?"([a-z0-9-]+) ')


def version(source: str) -> str:
    """
    The version of a package.

    Args:
        source: `pypi:NAME` in requirements/dev.lock; `maven:FILE:ARTIFACT` in a pom; `go:MODULE` in the tests' go.mod.

    Raises:
        ValueError: the file does not name it.
    """
    kind, _, rest = source.partition(":")
    if kind == "pypi":
        found = re.search(rf"^{re.escape(rest)}==(\S+)", (ROOT / "requirements/dev.lock").read_text(), re.MULTILINE)
    elif kind == "go":
        found = re.search(rf"{re.escape(rest)} v(\S+)", (ROOT / "tests/clients/franz_go/go.mod").read_text())
    else:
        return _maven_version(*rest.split(":"))
    if found is None:
        raise ValueError(f"there is no version of {source}")
    return found[1]


def _maven_version(file: str, artifact: str) -> str:
    pom = ET.parse(ROOT / file).getroot()
    for dependency in pom.iter(f"{_MAVEN}dependency"):
        if dependency.findtext(f"{_MAVEN}artifactId") == artifact:
            text = dependency.findtext(f"{_MAVEN}version", "")
            name = re.fullmatch(r"\$\{(.+)\}", text)
            return text if name is None else pom.findtext(f"{_MAVEN}properties/{_MAVEN}{name[1]}", "")
    raise ValueError(f"{file} does not name {artifact}")


def calls() -> dict[str, int]:
    """The number of calls of each of Apache Kafka's tools whose output is compared."""
    counts: dict[str, int] = {}
    for tool in _CALL.findall((ROOT / "tests/clients/tools/calls.py").read_text()):
        counts[tool] = counts.get(tool, 0) + 1
    return counts


def page() -> str:
    """The text of the page."""
    facts = tomllib.loads(FACTS.read_text())
    return "\n".join(_lines(facts)).rstrip() + "\n"


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "# Compatibility"
    yield ""
    yield facts["introduction"].strip()
    for title, key in (("Clients", "client"), ("Frameworks", "framework"), ("Test suites of others", "suite")):
        yield f"\n## {title}\n"
        yield "| software | version | what is run | result | known limits |"
        yield "|---|---|---|---|---|"
        for row in facts.get(key, []):
            what = f"{row['run']} ({_test(row)})" if "test" in row else row["run"]
            shown = version(row["version"]) if ":" in row["version"] else row["version"]
            yield f"| {row['name']} | {shown} | {what} | {row.get('result', 'passes')} | {row.get('limits', 'none')} |"
    yield "\n## Logins\n"
    yield facts["logins"].strip()
    yield "\n## Tools of Apache Kafka\n"
    yield facts["tools"].strip() + "\n"
    yield "| tool | calls | known limits |"
    yield "|---|---|---|"
    for tool, count in sorted(calls().items()):
        yield f"| `kafka-{tool}` | {count} | {facts['tool-limits'].get(tool, 'none')} |"


def _test(row: Mapping[str, str]) -> str:
    if not (ROOT / row["test"]).exists():
        raise ValueError(f"there is no {row['test']}")
    return f"`{row['test']}`"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() == text:
            return 0
        print("docs/compatibility.md is not up to date: run python tools/compatibility.py", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
