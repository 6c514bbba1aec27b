"""
Build hook of the wheel: compile the modules on the request path with mypyc.

A wheel is compiled where a C compiler and Python's headers are installed, and plain Python elsewhere. Both behave the same;
`kohort --version` names the build. Sources are copied to a temporary directory first, so a build leaves no file in the tree.
Editable installs are always plain: Python would load a compiled module even after its source has changed.

Environment variables:
    KOHORT_BUILD: `auto` (default), `compiled` (fail if the wheel cannot be compiled) or `plain`.
    KOHORT_BUILD_OPT_LEVEL: the C compiler's optimization level, 0 to 3. Default: 3.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODES = ("auto", "compiled", "plain")
_SHOW_S = 1.0
"""How often the progress is shown."""
SETUP = """\
import setuptools
from mypyc.build import mypycify

setuptools.setup(
    name="kohort-compiled",
    package_dir={{"": "src"}},
    ext_modules=mypycify(["--ignore-missing-imports", *{paths!r}], opt_level={opt_level!r}, debug_level="0"),
)
"""


class CompileError(Exception):
    """The modules cannot be compiled here. The message is one line."""


class CompileHook(BuildHookInterface[Any]):
    """Compile the modules that pyproject.toml lists as `include` and put them into the wheel beside their sources."""

    _directory: "TemporaryDirectory[str] | None" = None

    def dependencies(self) -> list[str]:
        """Return what the compiler needs at build time: mypyc, and the runtime dependencies for their types."""
        if _mode() == "plain" or (_mode() == "auto" and not _has_compiler()):
            return []
        return [*self.config["requires"], *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless this is an editable install or a plain wheel was asked for."""
        if version == "editable" or _mode() == "plain":
            return
        self._directory = TemporaryDirectory(prefix="kohort-build-")
        try:
            extensions = _compile(Path(self.root), Path(self._directory.name), self.config["include"])
        except CompileError as exc:
            if _mode() == "compiled":
                raise
            self.app.display_warning(f"Kohort is built as plain Python, which is slower: {exc}")
            return
        build_data["infer_tag"] = True
        build_data["pure_python"] = False
        build_data["force_include"].update(extensions)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary directory."""
        del version, build_data, artifact_path
        if self._directory is not None:
            self._directory.cleanup()


def _mode() -> str:
    mode = os.environ.get("KOHORT_BUILD") or "auto"
    if mode not in MODES:
        raise ValueError(f"KOHORT_BUILD is {mode!r}; use one of {', '.join(MODES)}")
    return mode


def _compiler() -> list[str]:
    """Return the command of the C compiler: $CC if set, else that of the Python installation, else cc."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    command = shlex.split(sysconfig.get_config_var("CC") or "cc")
    return command if shutil.which(command[0]) else ["cc"]


def _has_compiler() -> bool:
    """Tell whether a C file that includes Python.h can be compiled."""
    include = ["-I" + sysconfig.get_path("include"), "-I" + sysconfig.get_path("platinclude")]
    command = [*_compiler(), *include, "-fsyntax-only", "-x", "c", "-"]
    try:
        done = subprocess.run(command, input=b"#include <Python.h>\n", capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _compile(root: Path, work: Path, modules: list[str]) -> dict[str, str]:
    """
    Compile modules in `work`.

    Returns:
        The path in the wheel of each extension module, by its path on disk.

    Raises:
        CompileError: there is no C compiler, no mypyc, or the compiler fails.
    """
    if not _has_compiler():
        raise CompileError("there is no C compiler, or the headers of Python (Python.h) are missing")
    shutil.copytree(root / "src", work / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    opt_level = os.environ.get("KOHORT_BUILD_OPT_LEVEL") or "3"
    (work / "setup.py").write_text(SETUP.format(paths=modules, opt_level=opt_level))
    # -w: the warnings about 36 MB of generated C take a minute and a half to find. Hidden functions are called directly.
    flags = f"{os.environ.get('CFLAGS', '')} -w -fvisibility=hidden"
    environment = os.environ | {"CC": shlex.join(_compiler()), "CFLAGS": flags}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    output = work / "output.txt"
    with output.open("w") as file, _terminal() as terminal:
        process = subprocess.Popen(command, cwd=work, env=environment, stdout=file, stderr=subprocess.STDOUT)
        _watch(process, work, len(modules), lambda text: print(f"\r{text}", end="", file=terminal, flush=True))
    if process.returncode:
        print(output.read_text(), file=sys.stderr)
        raise CompileError(f"mypyc failed: {(output.read_text().strip() or 'no output').splitlines()[-1]}")
    return {str(path): str(path.relative_to(work / "src")) for path in (work / "src").rglob("*.so")}


def _terminal() -> TextIO:
    """The terminal of the caller. Installers keep the output of a build to themselves, and this one takes minutes."""
    try:
        return open("/dev/tty", "w")
    except OSError:
        return open(os.devnull, "w")


def _watch(process: "subprocess.Popen[bytes]", work: Path, count: int, show: Callable[[str], None]) -> None:
    """Tell the user until the process ends what it does, and for how long."""
    begun = time.monotonic()
    while True:
        try:
            process.wait(_SHOW_S)
        except subprocess.TimeoutExpired:
            step = "2 of 2: compiling C" if next((work / "build").rglob("*.c"), None) else "1 of 2: checking types"
            seconds = int(time.monotonic() - begun)
            show(f"Kohort: {count} modules become C (2 to 10 minutes), step {step}, {seconds // 60}:{seconds % 60:02} ")
        else:
            if time.monotonic() - begun > _SHOW_S:
                show("\n")
            return
