"""
Install each wheel into a bare virtual environment, with its runtime dependencies only, and run tools/smoke_broker.py there.

Usage: python tools/check_wheels.py dist/*.whl

With the extra `tables`, the pipeline has to answer without Spark and Java. The compiled wheel must have a platform tag and the
plain one `py3-none-any`; `kohort --version` must name the build.
"""

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from tempfile import TemporaryDirectory

SMOKE = Path(__file__).with_name("smoke_broker.py")
LOGS = Path(__file__).parents[1] / "tests" / "data" / "pipeline" / "tv1.tar.xz"
PLAIN_TAG = "py3-none-any"
WITHOUT_PIPELINE = """
import importlib.util, sys
found = [name for name in ("duckdb", "numpy", "pandas", "pyarrow", "pyspark", "pytest") if importlib.util.find_spec(name)]
sys.exit(f"the wheel installs {', '.join(found)}, which only its extras need" if found else 0)
"""


def check(wheel: Path) -> None:
    """Raise SystemExit if the wheel does not work."""
    tag = wheel.stem.split("-", 2)[2]
    build = "plain" if tag == PLAIN_TAG else "compiled"
    if build == "compiled" and tag.endswith("-any"):
        sys.exit(f"{wheel.name}: tag {tag} does not name a platform")
    started = time.monotonic()
    with TemporaryDirectory(prefix="kohort-wheel-") as directory:
        python = Path(directory, "venv", "bin", "python")
        run(sys.executable, "-m", "venv", str(python.parents[1]), at=directory)
        run(
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            str(wheel.absolute()),
            at=directory,
        )
        kohort = python.with_name("kohort")
        version = run(str(kohort), "--version", at=directory).strip()
        if not version.endswith(f"({build})"):
            sys.exit(f"{wheel.name}: kohort --version says {version!r}, expected the {build} build")
        run(str(python), "-I", "-c", WITHOUT_PIPELINE, at=directory)
        run(str(python), "-I", str(SMOKE), str(kohort), at=directory)
        check_tables(wheel, python, Path(directory))
    print(f"{wheel.name}: {version} serves; {time.monotonic() - started:.0f} s")


def check_tables(wheel: Path, python: Path, directory: Path) -> None:
    """Check that the extra `tables` answers questions about logs: PySpark is not installed, and Java is not found."""
    wanted = f"{wheel.absolute()}[tables]"
    run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", wanted, at=str(directory))
    with tarfile.open(LOGS) as archive:
        archive.extractall(directory, filter="data")
    environment = {"JAVA_HOME": str(directory / "nowhere"), "PATH": str(python.parent)}
    for question in (("offsets",), ("lag", "--time"), ("rebalances",), ("transactions", "--statistics")):
        command, *options = question
        kohort = str(python.with_name("kohort"))
        done = subprocess.run(
            [kohort, "pipeline", command, str(directory / "logs"), *options],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or done.stdout.count("\n") < 2:
            sys.exit(
                f"{wheel.name}: kohort pipeline {' '.join(question)} fails without Spark:\n{done.stdout}{done.stderr}"
            )


def run(*command: str, at: str) -> str:
    """Run a command outside the repository and return its standard output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KOHORT_"))}
    done = subprocess.run(command, cwd=at, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with exit code {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("Usage: python tools/check_wheels.py WHEEL...")
    for name in sys.argv[1:]:
        check(Path(name))
