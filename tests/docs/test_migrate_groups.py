"""The program of docs/howto/migrate-groups.md is a member of either protocol, and the group is what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import wait_until
from tests.conftest import NIGHTLY

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "migrate-groups.md"


@NIGHTLY
@pytest.mark.clients
def test_the_group_of_the_page(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "member.py").write_text(program)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with ServedKohort(tmp_path, settings) as broker:
        kohort("topics", "create", "orders", "--partitions", "4", bootstrap=broker.bootstrap)
        members = []
        try:
            for protocol in ("classic", "consumer"):
                command = [sys.executable, str(tmp_path / "member.py"), protocol, broker.bootstrap]
                members.append(subprocess.Popen(command))

                def kind() -> str:
                    groups = kohort_json("groups", "list", bootstrap=broker.bootstrap)
                    return next((f"{row['type']} {row['state']}" for row in groups), "no group")

                wait_until(lambda: kind() == f"{protocol} Stable", what=lambda: f"{protocol}: {kind()}")  # noqa: B023
        finally:
            for member in members:
                member.kill()
                member.wait()
