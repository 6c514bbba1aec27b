"""
Makes dist/kohort-SYSTEM-MACHINE.tar.gz: Kohort with a Python, for machines that have none.

    .venv/bin/python tools/standalone.py

The archive has the Python that runs this script, its standard library, the packages that Kohort needs, every shared library
that these load, and the loader and the C library that fit them. A machine that unpacks it needs a kernel and /bin/sh. The
machine that makes it has Linux with glibc: its own files are copied.
"""

import compileall
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
NAME: Final = f"kohort-{platform.system().lower()}-{platform.machine()}"
VERSION: Final = f"python{sysconfig.get_python_version()}"
WITHOUT: Final = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "sqlite3",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "_curses*",
    "_dbm*",
    "_gdbm*",
    "_sqlite3*",
    "_test*",
    "_tkinter*",
    "readline*",
    "*.a",
)
"""What a broker does not import."""
HERE: Final = """\
#!/bin/sh
here=$(readlink -f "$0")
here=${here%/bin/*}
"""
PYTHON: Final = f"""\
{HERE}exec "$here/lib/LOADER" --argv0 "$here/bin/python3" --library-path "$here/lib" "$here/lib/python3" "$@"
"""
KOHORT: Final = f"""\
{HERE}exec "$here/lib/LOADER" --argv0 "$here/bin/python3" --library-path "$here/lib" "$here/lib/python3" -I -m kohort "$@"
"""
_LIBRARY: Final = re.compile(r"(/\S+) \(0x")
"""A file that `ldd` has found."""


def libraries(files: Iterable[Path]) -> Iterator[Path]:
    """The shared libraries that files load, and the loader, from wherever the machine has them."""
    told = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    if "not found" in told:
        raise SystemExit("a library is missing: " + next(line for line in told.splitlines() if "not found" in line))
    yield from sorted({Path(found) for found in _LIBRARY.findall(told)})


def is_loader(path: Path) -> bool:
    return path.name.startswith("ld-linux")


def fill(target: Path) -> None:
    """Put everything into a directory."""
    library, executable = target / "lib", Path(os.path.realpath(sys.executable))
    standard = library / VERSION
    packages = standard / "site-packages"
    ignore = shutil.ignore_patterns(*WITHOUT)
    shutil.copytree(sysconfig.get_path("stdlib"), standard, ignore=ignore)
    shutil.copytree(sysconfig.get_config_var("DESTSHARED"), standard / "lib-dynload", ignore=ignore, dirs_exist_ok=True)
    subprocess.run(
        (
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
            *("--target", str(packages), f"{ROOT}[testing]"),
        ),
        check=True,
        env={**os.environ, "KOHORT_BUILD": os.environ.get("KOHORT_BUILD", "plain")},
    )
    shutil.rmtree(packages / "bin", ignore_errors=True)
    shutil.copy2(executable, library / "python3")
    loader = ""
    for found in libraries([executable, *standard.rglob("*.so")]):
        if not found.is_relative_to(target):
            shutil.copy2(found, library / found.name)
            loader = found.name if is_loader(found) else loader
    if shutil.which("strip"):
        subprocess.run(("strip", "--strip-unneeded", *target.rglob("*.so*")), check=False, stderr=subprocess.DEVNULL)
    compileall.compile_dir(
        standard, quiet=2, stripdir=str(library), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    (target / "bin").mkdir()
    for name, text in (("python3", PYTHON), ("kohort", KOHORT)):
        script = target / "bin" / name
        script.write_text(text.replace("LOADER", loader))
        script.chmod(0o755)


def main() -> int:
    target = ROOT / "build" / "standalone" / NAME
    shutil.rmtree(target, ignore_errors=True)
    fill(target)
    archive = ROOT / "dist" / f"{NAME}.tar.gz"
    archive.parent.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(target, arcname=NAME)
    version = subprocess.run((target / "bin" / "kohort", "--version"), capture_output=True, text=True, check=True)
    print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size / 1e6:.0f} MB, {version.stdout.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
