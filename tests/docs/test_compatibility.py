"""docs/compatibility.md is generated, and names tests that exist."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    """To refresh it: .venv/bin/python tools/compatibility.py"""
    assert (ROOT / "docs/compatibility.md").read_text() == runpy.run_path(str(ROOT / "tools/compatibility.py"))[
        "page"
    ]()
