"""
The edges of numbers as texts of configurations: every number of topics, groups and client metrics, and of brokers where a
change is possible at run time.
"""

# ruff: noqa: RUF001 -- digits of many scripts

from collections.abc import Iterator
from typing import Final, NamedTuple

from kohort.broker.configs.definitions import CLIENT_METRICS_KEYS, ConfigKey, UpdateMode, keys_of
from kohort.broker.configs.values import ConfigType
from kohort.wire.apis import DEFAULT_RELEASE

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

INTEGERS: Final = (
    "0", "1", "-1", "-2", "+5", " 5\x01", "0" * 5_000 + "7", "٧", "７", "-٧", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "32767", "32768", "-32769",
    "1" * 4_301, "-" + "9" * 20_000, "", "-", "1_000", "0x10", "1.0", "1e3", "5L", "²", "\u20035", "nan",
)  # fmt: skip
DOUBLES: Final = (
    "0", "1", "-1", "0.5", ".5", "5.", "4.9e-324", "1e-320", "1e-400", "-0.0", "1.8e308", "-1e999", "NaN", "nan", "inf",
    "Infinity", "-Infinity", "0x1p-1", "0x1p9999", "0x1", "0.5f", "0.5D", "0.5ff", "0_1.0", "٠.٥",
    "1" * 5_000, "0." + "0" * 5_000 + "1", "",
    "1e", "1,5", " 0.25\x01", "\u20030.5",
)  # fmt: skip
BOOLEANS: Final = ("true", " TRUE\x01", "False", "yes", "1", "0", "", "\u2003true", "t" * 5_000)
TEXTS: Final = dict.fromkeys((ConfigType.INT, ConfigType.SHORT, ConfigType.LONG), INTEGERS) | {
    ConfigType.DOUBLE: DOUBLES,
    ConfigType.BOOLEAN: BOOLEANS,
}


class Subject(NamedTuple):
    """A resource and one of its keys."""

    kind: int
    name: str
    key: ConfigKey

    @property
    def texts(self) -> tuple[str, ...]:
        return TEXTS[self.key.type]

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} {self.key.name}"


def subjects() -> Iterator[Subject]:
    """All of them. A key that brokers share is asked for all brokers."""
    keys = keys_of(DEFAULT_RELEASE)
    for kind, name, table in (
        (TOPIC, "t", keys.topic),
        (GROUP, "g", keys.group),
        (CLIENT_METRICS, "m", CLIENT_METRICS_KEYS),
    ):
        for key in table.values():
            if key.type in TEXTS:
                yield Subject(kind, name, key)
    for key in keys.broker.values():
        if key.type in TEXTS and key.update_mode is not UpdateMode.READ_ONLY:
            yield Subject(BROKER, "" if key.update_mode is UpdateMode.CLUSTER_WIDE else "1", key)
