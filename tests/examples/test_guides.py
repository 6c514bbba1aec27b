"""The Python blocks of the guides run as they stand, one after another, from an empty directory."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "count", "mistakes", "runs"), [("runtime.md", 9, 1, 1), ("howto/embed-the-runtime.md", 3, 0, 2)]
)
def test_a_guide_runs(page: str, count: int, mistakes: int, runs: int, tmp_path: Path) -> None:
    """
    Runs: in one directory, one after the other, as readers try a guide. Mistakes: how many operations fail on purpose, which
    the runtime logs.
    """
    blocks = [textwrap.dedent(body) for _, body in _BLOCK.findall((DOCS / page).read_text())]
    assert len(blocks) == count
    (tmp_path / "guide.py").write_text("\n".join(blocks))
    for _ in range(runs):
        done = subprocess.run([sys.executable, "guide.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("Traceback") == mistakes, done.stderr


def test_every_public_name_is_there() -> None:
    import kohort.hosting
    import kohort.machine
    import kohort.runtime
    import kohort.testing

    for package in (kohort.hosting, kohort.machine, kohort.runtime, kohort.testing):
        assert sorted(package.__all__) == package.__all__
        for name in package.__all__:
            assert getattr(package, name) is not None
