"""
MkDocs hook: pages of the repository's root become pages of the site, and links between both work in either place.

A link to a file that is not a page, such as a source file, becomes its text.
"""

import re
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT_PAGES = ("DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\[([^\]\[]+)\]\(([^)\s#:]+)(#[^)\s]+)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository's root."""
    root = Path(config.config_file_path).parent
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite links: paths in the repository become paths in the site."""
    root = Path(config.config_file_path).parent
    source = page.file.src_uri
    here = "" if source in ROOT_PAGES else dirname(f"docs/{source}")

    def rewrite(match: re.Match[str]) -> str:
        text, target, anchor = match[1], normpath(join(here, match[2])), match[3] or ""
        uri = target if target in ROOT_PAGES else target.removeprefix("docs/")
        if files.get_file_from_path(uri) is not None:
            depth = source.count("/")
            return f"[{text}]({'../' * depth}{uri}{anchor})"
        return text if (root / target).exists() else match[0]

    return LINK.sub(rewrite, markdown)
