"""A recorded run of Apache Kafka in a compressed file. The same outcomes give the same bytes."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kohort.model.errors import ConfigError
from kohort_lab.conformance.outcome import Outcome


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        broker: name and version, such as "Apache Kafka 4.2.1".
        settings: the broker configurations that the scenarios need.
        unstable: scenarios whose outcome differs between runs of the same broker. They are not run.
        outcomes: by the name of the scenario.
    """

    broker: str
    settings: dict[str, str]
    unstable: list[str]
    outcomes: dict[str, Outcome]

    def missing(self, names: Mapping[str, object]) -> list[str]:
        """The scenarios that are not in the recording."""
        return sorted(names.keys() - self.outcomes.keys() - set(self.unstable))


def save(recording: Recording, path: Path) -> None:
    ordered = msgspec.structs.replace(recording, outcomes=dict(sorted(recording.outcomes.items())))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(msgspec.json.encode(ordered), 9, mtime=0))


def load(path: Path) -> Recording:
    """
    Raises:
        ConfigError: the file is not there, or no recording.
    """
    try:
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Recording)
    except OSError as exc:
        raise ConfigError(f"the recording {path} cannot be read: {exc}") from None
    except (msgspec.DecodeError, EOFError, zlib.error) as exc:
        raise ConfigError(f"{path} is no recording: {exc}") from None
