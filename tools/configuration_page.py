"""
Writes docs/configuration.md from the table of configurations.

    make configuration          # write the page
    python tools/configuration_page.py --check
"""

# ruff: noqa: E501

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kohort.broker.configs.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    UpdateMode,
)

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

`kohort serve` knows every broker configuration of Apache Kafka 4.2.1 and 4.4.0 by name, checks its value as Kafka does, and shows
those of its [release](releases.md) in DescribeConfigs with a sentence about each. A configuration without an effect is accepted, and the start logs
`config.without_effect` for each that is set. `kohort config` prints these tables with the values that a broker would have.
This page is made from the table in `kohort.broker.configs.config_table` (`make configuration`).

A value comes from these sources; later sources win:

1. Kafka's default,
2. a file: `--config server.properties` (Kafka's format) or `--config kohort.toml` (`"num.partitions" = 3`),
3. the environment: `KOHORT_NUM_PARTITIONS=3` sets `num.partitions`, as in Kafka's container images (a dot becomes an underscore, an
   underscore two, a dash three). `KOHORT_SET_NUM_PARTITIONS` means the same, and also sets keys that Kohort does not know,
4. the command line: `--set num.partitions=3`, repeatable,
5. a change at run time for all brokers, then one for this broker: `kafka-configs --alter`, or the admin API of any client.

An invalid value ends the start with an error message and exit code 2. An unknown name is logged as `config.unknown`, with a similar
known name if there is one, as Kafka does; `--for-tests` refuses it.

A change at run time takes effect at once and is stored in the data directory. The column "change" says when it is possible: not at
all (an empty cell), for one broker (per-broker), or for one broker and for all (cluster-wide). A topic configuration has the value that
was set for the topic, else that of the broker's key.

A stored value that a later start cannot use, because another version has stored it or because the values of that start contradict
it, does not keep the broker from starting. The start logs `catalog.set_aside` with the entry, the key and the reason, and goes on
without the value: nothing uses or shows it. So it is for configurations of brokers, topics and groups, subscriptions of client
metrics, quotas, SCRAM credentials and levels of features. A level above the newest one is that of a newer version and ends the start.

Features of the cluster have levels, which clients read in ApiVersions. The newest level is finalised unless the start names another
one: `kohort serve --feature transaction.version=1`. Level 0 of `transaction.version` refuses transactions of version 2 (EndTxn from
version 5 on) with UNSUPPORTED_VERSION.

The durability of acknowledged records is not a configuration of Kafka but the option `--flush`: see "Durability" in the README.
"""

_NOTES = """\
Notes:

- `default.replication.factor`: a cluster has one broker, so topics cannot be created with more than 1.
- `group.consumer.assignors`: see [custom assignors](howto/custom-assignors.md).
- `group.coordinator.rebalance.protocols`: without consumer, and with `--feature group.version=0`, ConsumerGroupHeartbeat and
  ConsumerGroupDescribe answer UNSUPPORTED_VERSION; groups of that protocol in the log are loaded and keep their offsets. The other
  protocols are not implemented.
- `group.consumer.assignment.interval.ms`: a group may set its own (`consumer.assignment.interval.ms`). A change takes effect at once,
  also for an interval that has begun. With 0 a target assignment is computed at every change, as in Kafka 4.2.
- `group.consumer.session.timeout.ms`, `group.consumer.heartbeat.interval.ms`: a group may set its own
  (`consumer.session.timeout.ms`), which takes effect with the next heartbeat of each member. The broker does not start unless each
  default is within its limits and the heartbeat interval is below the session timeout. A value that a group has set stays in force
  if the limits change later, as in Kafka.
- `log.flush.interval.messages`, `log.flush.interval.ms`, `flush.messages`, `flush.ms`: concern `--flush os`; without it every record is
  flushed before it is acknowledged. As in Kafka, `flush.ms` acts only if `log.flush.scheduler.interval.ms` is set, at its interval.
- `log.initial.task.delay.ms`: at most the interval of the check.
- `max.connections`: file descriptors are a limit, too ([limits](limits.md)).
- `offset.metadata.max.bytes`: counts UTF-16 code units, as Kafka does.
- `producer.id.expiration.ms`: checked with the retention.
"""


def page() -> str:
    """The text of the page."""
    effective = [key for key in BROKER_KEYS.values() if key.has_effect]
    shown = [key for key in BROKER_KEYS.values() if not key.has_effect]
    sections = (
        _INTRODUCTION,
        "## Broker configurations with an effect\n",
        _table(effective),
        _NOTES,
        "## Topic configurations\n",
        _table(TOPIC_KEYS.values(), with_effect=True),
        "## Group configurations\n",
        _table(GROUP_KEYS.values(), with_effect=True),
        "## Configurations of client metrics\n",
        _table(CLIENT_METRICS_KEYS.values(), with_effect=True),
        "## Broker configurations without an effect\n\nThey are validated, stored and shown to clients.\n",
        _table(shown),
    )
    return "\n".join(sections)


def _table(keys: Iterable[ConfigKey], *, with_effect: bool = False) -> str:
    last = "effect" if with_effect else "change"
    lines = [f"| key | type | default | values | {last} | meaning |", "|---|---|---|---|---|---|"]
    lines += _rows(keys, with_effect=with_effect)
    return "\n".join(lines) + "\n"


def _rows(keys: Iterable[ConfigKey], *, with_effect: bool) -> Iterator[str]:
    for key in keys:
        last = ("yes" if key.has_effect else "no") if with_effect else _mode(key)
        kind = key.type.name.lower()
        cells = (f"`{key.name}`", kind, _default(key), key.valid or "", last, key.documentation)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _mode(key: ConfigKey) -> str:
    return "" if key.update_mode is UpdateMode.READ_ONLY else str(key.update_mode)


def _default(key: ConfigKey) -> str:
    return "-" if key.default in (None, "") else f"`{key.default}`"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
