"""docs/control-api.json and docs/faults.md are those of the code."""

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/control_api.py"))


def test_the_page_of_faults_is_up_to_date() -> None:
    """To refresh it: .venv/bin/python tools/control_api.py"""
    assert (ROOT / "docs/faults.md").read_text() == tool()["page"]()


def test_the_document_is_up_to_date() -> None:
    """To refresh it: .venv/bin/python tools/control_api.py"""
    assert (ROOT / "docs/control-api.json").read_bytes() == tool()["document"]()


def test_every_reference_of_the_document_exists() -> None:
    document = json.loads((ROOT / "docs/control-api.json").read_text())

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for inner in value.values() for each in references(inner)]
        return [each for inner in value for each in references(inner)] if isinstance(value, list) else []

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
