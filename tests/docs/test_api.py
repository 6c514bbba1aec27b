"""docs/api.md names the packages with public names; each of them has `__all__`, and every name in it exists."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = re.findall(
    r"`(kohort(?:_lab)?\.[\w.]+)\.__all__`", (Path(__file__).parents[2] / "docs" / "api.md").read_text()
)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_exist(package: str) -> None:
    found = import_module(package)
    assert len(set(found.__all__)) == len(found.__all__) > 0
    missing = [name for name in found.__all__ if not hasattr(found, name) and find_spec(f"{package}.{name}") is None]
    assert missing == []
