"""
Settings in the catalog: small values by kind and name, such as client quotas, SCRAM credentials and levels of features.

The module that owns a kind defines the names and the fields of its values, and bounds their number.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

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
SettingsListener: TypeAlias = Callable[[list[Setting]], None]


def deleted_setting(key: bytes) -> Setting:
    """The deletion of a setting that a tombstone with this key says."""
    kind, _, name = key.decode().removeprefix(SETTING_PREFIX).partition(":")
    return Setting(kind, name, None)


def is_too_large(key: bytes, value: bytes) -> bool:
    """Whether a stored setting is larger than one that can be stored: an earlier version had no limit."""
    kind = key.decode(errors="replace").removeprefix(SETTING_PREFIX).partition(":")[0]
    return len(value) > _STORED_BYTES_MAX.get(kind, len(value))


class SettingsView:
    """The settings of one view of the catalog."""

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[str, dict[str, Any]]] = {}

    def of_kind(self, kind: str) -> Mapping[str, dict[str, Any]]:
        """Values by name, in the order in which the names were first set."""
        return self._by_kind.get(kind, {})

    def apply(self, setting: Setting) -> None:
        settings = self._by_kind.setdefault(setting.kind, {})
        if setting.value is None:
            settings.pop(setting.name, None)
        else:
            settings[setting.name] = setting.value


class SettingsListeners:
    """Functions that are told of durable changes, by kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[SettingsListener]] = {}

    def add(self, kind: str, listener: SettingsListener) -> None:
        self._by_kind.setdefault(kind, []).append(listener)

    def notify(self, settings: tuple[Setting, ...]) -> None:
        for kind in {setting.kind: None for setting in settings}:
            changed = [setting for setting in settings if setting.kind == kind]
            for listener in self._by_kind.get(kind, ()):
                listener(changed)
