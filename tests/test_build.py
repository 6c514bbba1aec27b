"""The build hook: when a wheel is compiled, and what it falls back to."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import hatch_build
from hatch_build import CompileError, CompileHook

ROOT = Path(__file__).parents[1]
NO_COMPILER = "/nonexistent/cc"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "KOHORT_BUILD", "KOHORT_BUILD_OPT_LEVEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hook() -> CompileHook:
    builder = WheelBuilder(str(ROOT))
    config = builder.config.hook_config["custom"]
    return CompileHook(str(ROOT), config, builder.config, builder.metadata, "", "wheel")


def build_data() -> dict[str, Any]:
    return {"infer_tag": False, "pure_python": True, "force_include": {}}


def test_a_plain_wheel_needs_no_compiler(hook: CompileHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_BUILD", "plain")
    assert hook.dependencies() == []
    data = build_data()
    hook.initialize("standard", data)
    assert data == build_data()


def test_without_a_compiler_the_wheel_is_plain(
    hook: CompileHook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", NO_COMPILER)
    assert hook.dependencies() == []
    data = build_data()
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    assert data == build_data()
    assert "built as plain Python" in "".join(capsys.readouterr())


def test_a_compiled_wheel_is_demanded(hook: CompileHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", NO_COMPILER)
    monkeypatch.setenv("KOHORT_BUILD", "compiled")
    names = {re.split("[^A-Za-z0-9-]", each)[0] for each in hook.dependencies()}
    assert names >= {"mypy", "setuptools", "msgspec", "kio"}, "the compiler needs the types of runtime dependencies"
    with pytest.raises(CompileError, match="no C compiler"):
        hook.initialize("standard", build_data())


def test_an_editable_install_is_plain(hook: CompileHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_BUILD", "compiled")
    data = build_data()
    hook.initialize("editable", data)
    assert data == build_data()


def test_an_unknown_build_is_an_error(hook: CompileHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOHORT_BUILD", "fast")
    with pytest.raises(ValueError, match="use one of auto, compiled, plain"):
        hook.dependencies()


def test_the_laboratory_is_not_in_the_wheel_and_nothing_there_imports_it() -> None:
    files = {Path(each.distribution_path): Path(each.path) for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {file.parts[0] for file in files} == {"kohort", "pyspark_kohort"}
    importing = re.compile(r"^\s*(from|import) kohort_lab\b", re.MULTILINE)
    sources = [path for path in files.values() if path.suffix == ".py"]
    assert [path for path in sources if importing.search(path.read_text())] == []
    assert len(sources) > 500


def test_the_laboratory_brings_the_scripts_and_the_kohort_of_its_checkout() -> None:
    builder = WheelBuilder(str(ROOT / "lab"))
    files = {each.distribution_path for each in builder.recurse_included_files()}
    assert {"deliberate.toml", "recorded/kafka-4.2.1.json.gz", "scripts/commit_states.toml"} <= {
        file.removeprefix("kohort_lab/conformance/") for file in files
    }
    assert builder.metadata.core.dependencies == [f"kohort @ {ROOT.as_uri()}"]
    assert set(builder.metadata.core.scripts) == {"kohort-lab"}


def test_the_progress_names_the_step_and_the_time(tmp_path: Path) -> None:
    shown: list[str] = []
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None

        def show(text: str) -> None:
            shown.append(text)
            if len(shown) == 1:
                (tmp_path / "build").mkdir()
                (tmp_path / "build" / "group.c").touch()
            elif len(shown) == 2:
                process.communicate(b"\n")

        hatch_build._watch(process, tmp_path, 7, show)
    assert re.fullmatch(r"Kohort: 7 modules .*, step 1 of 2: checking types, 0:0\d ", shown[0])
    assert re.fullmatch(r"Kohort: 7 modules .*, step 2 of 2: compiling C, 0:0\d ", shown[1])
    assert shown[2:] == ["\n"]
