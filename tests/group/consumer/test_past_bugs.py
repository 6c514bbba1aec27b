"""The list of past bugs of consumer groups names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (Path(__file__).with_name("PAST_BUGS.md")).read_text())


def test_there_is_a_list() -> None:
    assert len(NAMED) > 60


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_named_tests_exist(path: str, name: str) -> None:
    assert re.search(rf"^( *def {name}\(|{name} = )", (ROOT / path).read_text(), re.MULTILINE)
