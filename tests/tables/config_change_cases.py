"""Changes of configurations of brokers, loggers and client metrics, each one alone and for validation only."""

from typing import NamedTuple

from kohort.broker.configs.definitions import ConfigKey, keys_of
from kohort.wire.apis import DEFAULT_RELEASE

SET, DELETE, APPEND, SUBTRACT = range(4)
BROKER, LOGGER, METRICS = 4, 8, 16


class Case(NamedTuple):
    """A change; `@logger` stands for a logger that exists."""

    kind: int
    name: str
    changes: tuple[tuple[str, int, str | None], ...]
    replaces: bool = False

    @property
    def id(self) -> str:
        api = "AlterConfigs" if self.replaces else "IncrementalAlterConfigs"
        return f"{api} {self.kind} {self.name!r} {self.changes}"


_SAMPLES = {"BOOLEAN": "true", "INT": "1000", "LONG": "1000", "SHORT": "10", "DOUBLE": "0.5"}


def _sample(key: ConfigKey) -> str:
    return key.default or _SAMPLES.get(key.type.name, "x")


# fmt: off
VALUES = (
    ("message.max.bytes", ("abc", "-1", "", "99999999999", " 5 ")),
    ("log.cleaner.threads", ("0", "2", "3", "-1")),
    ("num.io.threads", ("17", "16", "3", "4", "0")), ("num.network.threads", ("7", "1")), ("background.threads", ("21", "4")),
    ("num.replica.fetchers", ("3",)), ("num.recovery.threads.per.data.dir", ("5",)), ("remote.log.reader.threads", ("100",)),
    ("remote.log.manager.copier.thread.pool.size", ("100",)), ("remote.log.manager.expiration.thread.pool.size", ("1",)),
    ("remote.log.manager.follower.thread.pool.size", ("100",)),
    ("log.cleaner.dedupe.buffer.size", ("1000", "1048576", "1048577", "2097152")),
    ("log.cleaner.io.buffer.load.factor", ("0", "2", "x")), ("log.cleaner.io.buffer.size", ("0",)),
    ("log.cleaner.io.max.bytes.per.second", ("0", "-1")), ("log.cleaner.backoff.ms", ("-1",)),
    ("log.retention.ms", ("-2", "0", "-1", "1")), ("log.retention.bytes", ("-2", "0")),
    ("log.roll.ms", ("0", "1", "-1")), ("log.roll.jitter.ms", ("-1", "0")), ("log.segment.bytes", ("1",)),
    ("log.index.size.max.bytes", ("3",)), ("log.flush.interval.messages", ("0",)), ("log.flush.interval.ms", ("-1",)),
    ("log.cleanup.policy", ("x", "", "x,", "x,x", "delete,,compact", "delete,delete", "compact, delete")),
    ("compression.type", ("arj", "GZIP")), ("compression.gzip.level", ("0", "10", "9", "-1")),
    ("compression.lz4.level", ("0", "18")), ("compression.zstd.level", ("23", "-131073")),
    ("producer.id.expiration.ms", ("0",)), ("transaction.partition.verification.enable", ("maybe", "FALSE")),
    ("log.message.timestamp.type", ("x", "LogAppendTime")),
    ("log.cleaner.min.compaction.lag.ms", ("-1",)), ("log.cleaner.max.compaction.lag.ms", ("0",)),
    ("log.cleaner.min.cleanable.ratio", ("1.1", "0")),
    ("log.local.retention.ms", ("9999999999", "-3", "-1", "604800000")), ("log.local.retention.bytes", ("5", "-1")),
    ("log.remote.copy.lag.ms", ("999999999999", "-1", "-2")), ("log.remote.copy.lag.bytes", ("999999999999",)),
    ("group.consumer.assignment.interval.ms", ("15001", "15000", "-1")),
    ("group.share.assignment.interval.ms", ("15001",)), ("group.streams.assignment.interval.ms", ("15001",)),
    ("group.coordinator.cached.buffer.max.bytes", ("524287",)), ("max.decompressed.message.bytes", ("0", "2147483640")),
    ("errors.deadletterqueue.topic.name.prefix", ("", "__")), ("cordoned.log.dirs", ("*", "/nope", "*,/nope", "a,a", "a,,b")),
    ("max.connections.per.ip", ("0", "-1")), ("max.connections", ("0", "-1")), ("max.connection.creation.rate", ("0", "-1")),
    ("max.connections.per.ip.overrides",
     ("127.0.0.1:5", "x.invalid:5", "127.0.0.1:a", "127.0.0.1", "", "[::1]:5,127.0.0.1: 6")),
    ("metric.reporters", ("x", "")), ("principal.builder.class", ("x",)), ("ssl.client.auth", ("x", "required")),
    ("log.preallocate", ("1", "true")), ("unclean.leader.election.enable", ("true",)), ("min.insync.replicas", ("0", "2")),
    ("remote.fetch.max.wait.ms", ("0",)), ("remote.log.index.file.cache.total.size.bytes", ("0",)), ("log.dirs", ("/x",)),
    ("sasl.jaas.config", ("x",)), ("ssl.endpoint.identification.algorithm", ("",)), ("no.such.key", ("", "x")),
    ("listener.name.plaintext.ssl.keystore.location", ("/x",)), ("listener.name.plaintext.num.network.threads", ("4", "x")),
    ("listener.name.plaintext.max.connections", ("4",)), ("listener.name.x.plain.sasl.jaas.config", ("x",)),
    ("listener.name.x.node.id", ("1",)), ("listener.name.x.no.such", ("1",)),
)
_KEYS = keys_of(DEFAULT_RELEASE).broker.values()
BROKER_CASES = (
    *(Case(BROKER, name, ((key.name, SET, _sample(key)),)) for key in _KEYS for name in ("1", "")),
    *(Case(BROKER, name, ((key, SET, value),)) for key, values in VALUES for value in values for name in ("1", "")),
    *(Case(BROKER, name, (("message.max.bytes", SET, "1000"),))
      for name in ("2", "one", "01", "+1", "-1", " 1", "1 ", "99999999999999", "x")),
    *(Case(BROKER, name, changes) for name in ("1", "") for changes in (
        (("message.max.bytes", SET, "1"), ("message.max.bytes", SET, "2")), (("message.max.bytes", SET, None),),
        (("message.max.bytes", 9, "5"),), (("message.max.bytes", APPEND, "5"),), (("message.max.bytes", SUBTRACT, "5"),),
        (("no.such.key", APPEND, "5"),), (("node.id", APPEND, "5"),), (("advertised.listeners", APPEND, "5"),),
        (("log.cleanup.policy", APPEND, "compact"),), (("log.cleanup.policy", APPEND, "x"),),
        (("log.cleanup.policy", SUBTRACT, "delete"),), (("message.max.bytes", DELETE, None),), (("node.id", DELETE, None),),
        (("no.such.key", DELETE, None),), (("ssl.keystore.location", DELETE, "x"),), (("min.insync.replicas", DELETE, None),),
        (("num.partitions", SET, "1"), ("message.max.bytes", SET, "x")),
        (("ssl.protocol", SET, "x"), ("message.max.bytes", SET, "x")),
        (("log.cleaner.min.compaction.lag.ms", SET, "100"), ("log.cleaner.max.compaction.lag.ms", SET, "50")),
        (("log.retention.ms", SET, "100"), ("log.local.retention.ms", SET, "200")), (),
        (("log.local.retention.ms", SET, "1000"), ("log.remote.copy.lag.ms", SET, "1001")),
        (("log.retention.bytes", SET, "1000"), ("log.remote.copy.lag.bytes", SET, "1001")),
        (("log.local.retention.bytes", SET, "1000"), ("log.remote.copy.lag.bytes", SET, "1000")),
        (("no.such.key", SUBTRACT, "5"),), (("cordoned.log.dirs", APPEND, "/nope"),),
        (("group.streams.assignment.interval.ms", SET, "99999"), ("group.consumer.assignment.interval.ms", SET, "99999")),
        (("max.connections.per.ip", SET, "0"), ("max.connections.per.ip.overrides", SET, "127.0.0.1:5")),
        (("log.cleaner.threads", SET, "2"), ("log.cleaner.dedupe.buffer.size", SET, "2097152")),
    )),
    *(Case(BROKER, name, changes, replaces=True) for name in ("1", "", "2", "x") for changes in (
        (("message.max.bytes", SET, "5"),), (("message.max.bytes", SET, "5"), ("min.insync.replicas", SET, "1")),
        (("node.id", SET, "5"),), (("message.max.bytes", SET, None),), (("message.max.bytes", SET, "x"),),
        (("ssl.protocol", SET, "x"),),
        (("a.b", SET, "x"), ("a.b", SET, "y")), (("a.b", SET, "x"),), (("min.insync.replicas", SET, "2"),), (),
    )),
)
LOGGER_CASES = (
    *(Case(LOGGER, "1", (change,)) for change in (
        ("root", SET, "DEBUG"), ("root", SET, "debug"), ("root", SET, "foo"), ("root", SET, ""), ("root", DELETE, None),
        ("no.such.logger", SET, "INFO"), ("no.such.logger", SET, "foo"), ("no.such.logger", DELETE, None),
        ("@logger", SET, "TRACE"),
        ("@logger", SET, "OFF"), ("@logger", SET, "FATAL"), ("@logger", SET, "ALL"), ("@logger", SET, " INFO "),
        ("@logger", DELETE, None), ("@logger", DELETE, "x"), ("root", APPEND, "INFO"),
        ("root", SUBTRACT, "INFO"), ("root", 7, "INFO"), ("no.such.logger", -1, "INFO"),
        ("no.such.logger", APPEND, "INFO"), ("", SET, "INFO"), ("", DELETE, None), ("root", SET, None),
    )),
    Case(LOGGER, "1", ()),
    Case(LOGGER, "1", (("root", SET, "INFO"), ("root", SET, "WARN"))),
    Case(LOGGER, "1", (("root", SET, "INFO"), ("no.such.logger", SET, "WARN"))),
    *(Case(LOGGER, name, (("root", SET, "INFO"),)) for name in ("", "2", "x", "01", "+1", "1 ")),
    *(Case(LOGGER, name, (("root", SET, "INFO"),), replaces=True) for name in ("1", "", "2", "x")),
    Case(LOGGER, "1", (), replaces=True),
)
METRICS_CASES = (
    *(Case(METRICS, "s", (change,)) for change in (
        *(("interval.ms", SET, value) for value in ("99", "100", "3600000", "3600001", "abc", "", " 100 ", None)),
        *(("metrics", SET, value) for value in ("*", "a,b", "", "a,a", ",", "a,", "*,a", " a , b ")),
        *(("match", SET, value) for value in (
            "client_id=a.*", "foo=bar", "client_id", "client_id=[", "client_id=a=b", "client_id=a,client_id=b", "", ",", "=x",
            " client_id = a ", "client_id=", "client_id=a,", "client_instance_id=x", "client_software_name=x",
            "client_software_version=x", "client_source_address=x", "client_source_port=x", "CLIENT_ID=x")),
        ("metrics", APPEND, "c,a"), ("metrics", SUBTRACT, "a"), ("match", APPEND, "client_id=x"), ("interval.ms", APPEND, "5"),
        ("no.such", SET, "x"), ("no.such", DELETE, None), ("no.such", APPEND, "x"), ("interval.ms", 5, "100"),
        ("interval.ms", DELETE, None),
    )),
    *(Case(METRICS, "s", changes) for changes in (
        (("interval.ms", SET, "5"), ("match", SET, "foo=1")), (("match", SET, "foo=1"), ("interval.ms", SET, "5")),
        (("no.such", SET, "x"), ("interval.ms", SET, "5")), (("interval.ms", SET, "100"), ("interval.ms", SET, "200")), (),
    )),
    *(Case(METRICS, name, changes, replaces=replaces) for name in ("", "x y/z", "a" * 300) for replaces in (False, True)
      for changes in ((("interval.ms", SET, "100"),), ())),
    *(Case(METRICS, "s", changes, replaces=True) for changes in (
        (("interval.ms", SET, "500"), ("metrics", SET, "z")), (("a", SET, "y"),), (("interval.ms", SET, "y"),),
        (("interval.ms", SET, None),), (("interval.ms", SET, "100"), ("interval.ms", SET, "200")),
    )),
)
# fmt: on
CASES = {case.id: case for case in (*BROKER_CASES, *LOGGER_CASES, *METRICS_CASES)}
