"""Three nodes on a store, as processes with real clients: `make cluster`, and faults at random."""

from pathlib import Path
from random import Random

import pytest

from kohort_lab.served_nodes.show import main
from kohort_lab.served_nodes.torture import run
from tests.conftest import LONG, NIGHTLY

SECONDS = 600.0 if LONG else 60.0


@pytest.mark.clients
def test_the_fail_over_that_make_cluster_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Sixteen seconds: three processes, a lease, and commits of real clients before and after each event.
    arguments = ["show", "--brief", "--lease-ms", "1000", "--directory", str(tmp_path / "logs")]
    monkeypatch.setattr("sys.argv", arguments)
    code = main()
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert " 0 lost, 0 doubled, 0 in a wrong order" in printed
    assert "SIGKILL of node " in printed
    assert "Everything held." in printed


@NIGHTLY  # a minute of faults
@pytest.mark.clients
def test_faults_lose_and_double_nothing(tmp_path: Path, rng: Random) -> None:
    outcome = run(tmp_path, rng, print, seconds=SECONDS, lease_ms=2000)
    assert outcome.is_right, f"{outcome}\n" + "\n".join(outcome.verdict.examples)
