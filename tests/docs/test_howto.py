"""The pytest fixture of docs/howto/tests.md works as it is printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tests.md"
TEST = """\
from confluent_kafka.admin import AdminClient


def test_the_broker_answers(bootstrap: str) -> None:
    assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=120).brokers
"""


@pytest.mark.clients
def test_the_fixture(tmp_path: Path) -> None:
    (fixture,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_broker.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
