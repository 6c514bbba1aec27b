"""Links and anchors in the project's pages lead somewhere, and every page of docs/ is in the site's navigation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *(ROOT / each / "README.md" for each in ("clients", "examples", "examples/faults", "lab", "tests")),
    ]
)
LINK = re.compile(r"\[[^\]\[]+\]\(([^)\s]+)\)")
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = HEADING.findall(re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        if target.startswith(("https://", "mailto:")):
            continue
        found = page.parent / target if target else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(link)
    assert broken == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    missing = [
        name
        for name in (page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md"))
        if f": {name}\n" not in navigation
    ]
    assert missing == []
