"""Kohort in a zip file, as `spark-submit --py-files` ships it."""

from pathlib import Path
from zipfile import ZipFile

import kohort
import pyspark_kohort

_LEFT_OUT = {"__pycache__", "testing"}


def write_zip(path: Path) -> Path:
    """Write the plain sources of both packages and their data files; compiled modules cannot be imported from a zip file."""
    with ZipFile(path, "w") as archive:
        for package in (kohort, pyspark_kohort):
            root = Path(str(package.__file__)).parent
            for file in sorted(root.rglob("*")):
                if file.is_file() and file.suffix != ".so" and _LEFT_OUT.isdisjoint(file.parts):
                    archive.write(file, file.relative_to(root.parent))
    return path
