"""
Settings in the catalog: small values by kind and name, such as client quotas, SCRAM credentials and levels of features.

The module that owns a kind defines the names and the fields of its values, and bounds their number.
"""

from typing import Any, Final

import msgspec

from kohort.model.limits import SCRAM_STORED_BYTES_MAX


class Setting(msgspec.Struct, frozen=True):
    """
    One setting.

    Attributes:
        kind: of the setting, without a colon.
        name: unique within the kind.
        value: fields that JSON can express; None deletes the setting.
    """

    kind: str
    name: str
    value: dict[str, Any] | None

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return f"{SETTING_PREFIX}{self.kind}:{self.name}".encode()


SETTING_PREFIX = "setting:"
SCRAM: Final = "scram"
_STORED_BYTES_MAX: Final = {SCRAM: SCRAM_STORED_BYTES_MAX}
"""By kind: the size of the value of a record. Other kinds have the limits of configurations."""


def deleted_setting(key: bytes) -> Setting:
    """The deletion of a setting that a tombstone with this key says."""
    kind, _, name = key.decode().removeprefix(SETTING_PREFIX).partition(":")
    return Setting(kind, name, None)


def is_too_large(key: bytes, value: bytes) -> bool:
    """Whether a stored setting is larger than one that can be stored: an earlier version had no limit."""
    kind = key.decode(errors="replace").removeprefix(SETTING_PREFIX).partition(":")[0]
    return len(value) > _STORED_BYTES_MAX.get(kind, len(value))
