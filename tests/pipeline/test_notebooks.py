"""The notebooks of the examples run, cell by cell, over a recorded log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NIGHTLY

pytestmark = [pytest.mark.spark, NIGHTLY]

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {"lag.ipynb": "classic-three", "transactions.ipynb": "hold-open"}


def test_all_notebooks_are_known() -> None:
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs(
    name: str,
    spark: Any,
    recorded: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KOHORT_LOGS", str(recorded("main") / "logs"))
    told = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for cell in told["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "outputs of a run do not belong into the repository"
            exec("".join(cell["source"]), names)
    assert SHOWN[name] in capsys.readouterr().out
    spark.catalog.clearCache()
