"""Java is found, or the operator is told how to get it."""

from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.session import find_java


def java(directory: Path, version: str, *, exit_code: int = 0) -> Path:
    """A `java` that only tells its version."""
    path = directory / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho '{version}' >&2\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


# fmt: off
VERSIONS = {
    'openjdk version "17.0.15" 2025-04-15':   True,
    'openjdk version "21" 2023-09-19':        True,
    'java version "16.0.2"':                  False,
    'java version "1.8.0_402"':               False,
    "something else":                         False,
}
# fmt: on


@pytest.mark.parametrize("version", VERSIONS)
def test_java_must_be_17_or_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    path = java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if VERSIONS[version]:
        assert find_java() == str(path)
        return
    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, and .* apt-get install openjdk-17"):
        find_java()


def test_java_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    assert find_java() == str(path)


def test_no_java_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no Java on the PATH: install a Java runtime"):
        find_java()


def test_no_java_in_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no Java in JAVA_HOME"):
        find_java()


def test_a_java_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, "broken", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"does not run"):
        find_java()
