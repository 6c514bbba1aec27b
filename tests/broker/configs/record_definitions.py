"""
Asks Apache Kafka's own classes for the configurations and error codes of each release, and keeps them for the tests:

    python -m tests.broker.configs.record_definitions

Needs a JDK.
"""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any, Final

from kohort.testing.kafka import java, kafka_jars

RELEASES: Final = ("4.2.1", "4.4.0")
DATA: Final = Path(__file__).parents[2] / "data"


def path_of(release: str) -> Path:
    return DATA / f"definitions-{release}.json.gz"


def definitions(release: str) -> dict[str, Any]:
    """
    What the classes define. Configurations by kind and name: type, default, valid values, importance, and whether the key is
    internal. Error codes under `errors`, by name.
    """
    found: dict[str, Any] = json.loads(gzip.decompress(path_of(release).read_bytes()))
    return found


def main() -> None:
    for release in RELEASES:
        command = [
            java(),
            "-cp",
            f"{kafka_jars(release=release)}/*",
            str(Path(__file__).with_name("Definitions.java")),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        path_of(release).write_bytes(gzip.compress(done.stdout.encode(), mtime=0))
        print({kind: len(keys) for kind, keys in json.loads(done.stdout).items()}, path_of(release).stat().st_size)


if __name__ == "__main__":
    main()
