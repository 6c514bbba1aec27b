"""
Calls of Apache Kafka's command line tools, by subject. Each subject has topics, groups and entities of its own.

A call is a tool with its arguments, as at a shell. `recorded.py` has what the tools print when they talk to Apache Kafka.
"""

import shlex
from typing import NamedTuple

from tests.clients.secured import PASSWORDS, client_properties

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "client-compatibility": "org.apache.kafka.tools.ClientCompatibilityTest",
}
"""Main classes, by the name of the shell script without `kafka-`."""


class Call(NamedTuple):
    """
    Attributes:
        words: the tool and its arguments. `{file:NAME}` stands for a file of `FILES`, and `{hmac}` for the secret of the token
            that was printed last.
        stdin: the lines that it reads.
        is_sorted: whether the order of its lines is not kept, because it is that of a hash table.
        shown: only lines with this text are kept.
        hidden: lines with this pattern are left out; docs/unsupported.md explains them.
        until: text of its last line, if threads of the tool still write when its main method has returned.
    """

    words: str
    stdin: str = ""
    is_sorted: bool = False
    shown: str = ""
    hidden: str = ""
    until: str = ""

    @property
    def tool(self) -> str:
        return self.words.split()[0]

    def arguments(self, bootstrap: str, files: dict[str, str], hmac: str = "") -> list[str]:
        """The arguments with the address of the broker, and files in place of their names."""
        text = self.words.replace("{hmac}", hmac)
        for name, path in files.items():
            text = text.replace("{file:" + name + "}", path)
        _, *arguments = shlex.split(text)
        address = ["--bootstrap-server", bootstrap]
        # The parser of this tool takes the address behind the command only.
        return [*arguments, *address] if self.tool == "cluster" else [*address, *arguments]


FILES = {
    "deletions": '{"partitions": [{"topic": "deletions", "partition": 0, "offset": 3},'
    ' {"topic": "deletions", "partition": 1, "offset": -1}], "version": 1}',
    "deletions-beyond": '{"partitions": [{"topic": "deletions", "partition": 0, "offset": 300}], "version": 1}',
    "election": '{"partitions": [{"topic": "elections", "partition": 0}, {"topic": "elections", "partition": 7}]}',
    "to-move": '{"topics": [{"topic": "moves"}], "version": 1}',
    "moves": '{"version": 1, "partitions": [{"topic": "moves", "partition": 0, "replicas": [1], "log_dirs": ["any"]},'
    ' {"topic": "moves", "partition": 1, "replicas": [1], "log_dirs": ["any"]}]}',
    "moves-away": '{"version": 1, "partitions": [{"topic": "moves", "partition": 0, "replicas": [7]}]}',
    "moves-unknown": '{"version": 1, "partitions": [{"topic": "no-such", "partition": 0, "replicas": [1]}]}',
    "offsets-csv": '"resets",0,2\n"resets",1,1\n',
    **{
        name: "".join(f"{key}={text}\n" for key, text in client_properties(name, PASSWORDS[name]).items())
        for name in PASSWORDS
    },
}
"""Files that tools read, by name."""

_QUICK = "--command-property heartbeat.interval.ms=500 --command-property session.timeout.ms=6000"
_KEYED = "--reader-property parse.key=true --reader-property key.separator=:"
_TEN_LINES = "".join(f"{number % 4}:{number}\n" for number in range(10))
_ALL = "--from-beginning --timeout-ms 60000"

_NOT_SERVED = "Streams|RaftVoter|Telemetry"

SUBJECTS: dict[str, tuple[Call, ...]] = {
    "topics": (
        Call("topics --create --topic topics-a --partitions 3 --replication-factor 1 --config retention.ms=100000"),
        Call("topics --create --topic topics-a"),
        Call("topics --create --topic topics-a --if-not-exists"),
        Call("topics --create --topic topics-b --replica-assignment 1,1"),
        Call("topics --create --topic topics-c --replica-assignment 1:2"),
        Call("topics --create --topic topics-c --partitions 0"),
        Call("topics --create --topic topics-c --partitions 1 --replication-factor 3"),
        Call("topics --create --topic 'topics c'"),
        Call("topics --create --topic topics-c --config no.such=1"),
        Call("topics --create --topic topics-c --config retention.ms=soon"),
        Call("topics --create --topic topics.d"),
        Call("topics --list", shown="topics"),
        Call("topics --list --exclude-internal --topic 'topics-.*'"),
        Call("topics --describe --topic 'topics-.*'"),
        Call("topics --describe --topics-with-overrides", shown="topics"),
        Call("topics --describe --unavailable-partitions", shown="topics-"),
        Call("topics --describe --under-replicated-partitions", shown="topics-"),
        Call("topics --describe --under-min-isr-partitions", shown="topics-"),
        Call("topics --describe --at-min-isr-partitions --topic topics-a"),
        Call("topics --describe --topic no-such"),
        Call("topics --describe --topic no-such --if-exists"),
        Call("topics --alter --topic topics-a --partitions 5"),
        Call("topics --alter --topic topics-a --partitions 2"),
        Call("topics --alter --topic no-such --partitions 2"),
        Call("topics --describe --topic topics-a --partition-size-limit-per-response 2"),
        Call("topics --delete --topic topics-b"),
        Call("topics --delete --topic topics-b"),
        Call("topics --delete --topic topics-b --if-exists"),
        Call("topics --delete --topic __consumer_offsets"),
    ),
    "topic-configs": (
        Call("topics --create --topic configs"),
        Call(
            "configs --alter --entity-type topics --entity-name configs --add-config retention.ms=5000,segment.bytes=2000000"
        ),
        Call("configs --describe --entity-type topics --entity-name configs"),
        Call("configs --describe --entity-type topics --entity-name configs --all", is_sorted=True),
        Call(
            "configs --alter --entity-type topics --entity-name configs --add-config 'cleanup.policy=[compact,delete]'"
        ),
        Call("configs --describe --topic configs"),
        Call("configs --alter --entity-type topics --entity-name configs --delete-config retention.ms"),
        Call("configs --alter --entity-type topics --entity-name configs --delete-config no.such"),
        Call("configs --alter --entity-type topics --entity-name configs --add-config no.such=1"),
        Call("configs --alter --entity-type topics --entity-name configs --add-config retention.ms=soon"),
        Call("configs --alter --entity-type topics --entity-name no-such --add-config retention.ms=1"),
        Call("configs --describe --entity-type topics --entity-name no-such"),
        Call("configs --describe --entity-type topics --entity-name configs"),
    ),
    "broker-configs": (
        Call("configs --describe --entity-type brokers --entity-name 1", is_sorted=True),
        Call("configs --describe --entity-type brokers --entity-default"),
        Call("configs --alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=86400000"),
        Call("configs --describe --entity-type brokers --entity-name 1", is_sorted=True, shown="log.retention.ms"),
        Call("configs --alter --entity-type brokers --entity-default --add-config log.segment.bytes=200000000"),
        Call("configs --describe --entity-type brokers --entity-default"),
        Call("configs --alter --broker 1 --delete-config log.retention.ms"),
        Call("configs --alter --broker-defaults --delete-config log.segment.bytes"),
        Call("configs --describe --broker-defaults"),
        Call("configs --alter --broker 1 --add-config node.id=7"),
        Call("configs --alter --broker 1 --add-config log.retention.ms=soon"),
        Call("configs --alter --broker 1 --delete-config no.such"),
        Call(
            "configs --describe --entity-type brokers --entity-name 1 --all", is_sorted=True, shown="offsets.topic.num"
        ),
    ),
    "logger-configs": (
        Call("configs --alter --broker-logger 1 --add-config root=ERROR"),
        Call("configs --describe --broker-logger 1", shown="root="),
        Call("configs --alter --broker-logger 1 --add-config root=WARN"),
        Call("configs --describe --broker-logger 1", shown="root="),
        Call("configs --alter --broker-logger 1 --delete-config root"),
        Call("configs --alter --broker-logger 1 --add-config root=LOUD"),
        Call("configs --alter --broker-logger 1 --add-config no.such.logger=DEBUG"),
    ),
    "quotas": (
        Call("configs --alter --entity-type users --entity-name quota-u --add-config producer_byte_rate=1024000"),
        Call(
            "configs --alter --user quota-u --client quota-c --add-config consumer_byte_rate=2048000,request_percentage=50"
        ),
        Call("configs --alter --entity-type clients --entity-default --add-config producer_byte_rate=900000000"),
        Call("configs --alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=10"),
        Call("configs --describe --user quota-u"),
        Call("configs --describe --user quota-u --client quota-c"),
        Call("configs --describe --entity-type users --entity-type clients", is_sorted=True),
        Call("configs --describe --entity-type clients", is_sorted=True),
        Call("configs --describe --entity-type ips"),
        Call("configs --alter --user quota-u --delete-config producer_byte_rate"),
        Call("configs --alter --entity-type clients --entity-default --delete-config producer_byte_rate"),
        Call("configs --alter --user quota-u --add-config no_such=1"),
        Call("configs --alter --user quota-u --add-config producer_byte_rate=-1"),
        Call(
            "configs --alter --entity-type ips --entity-name no.such.address --add-config connection_creation_rate=10"
        ),
        Call("configs --describe --user quota-u"),
    ),
    "group-configs": (
        Call(
            "configs --alter --entity-type groups --entity-name configured --add-config consumer.session.timeout.ms=50000"
        ),
        Call("configs --describe --entity-type groups --entity-name configured"),
        Call("configs --describe --group configured --all", is_sorted=True, shown="consumer."),
        Call("configs --alter --group configured --add-config consumer.session.timeout.ms=1"),
        Call("configs --alter --group configured --add-config no.such=1"),
        Call("configs --alter --group configured --delete-config consumer.session.timeout.ms"),
        Call("configs --describe --group configured"),
    ),
    "client-metrics": (
        Call("client-metrics --list"),
        Call(
            "client-metrics --alter --name metrics --metrics org.apache.kafka. --interval 10000 --match client_id=abc"
        ),
        Call("client-metrics --describe --name metrics"),
        Call("client-metrics --list"),
        Call("configs --describe --client-metrics metrics"),
        Call("configs --alter --client-metrics metrics --add-config interval.ms=20000"),
        Call("configs --alter --client-metrics metrics --add-config interval.ms=1"),
        Call("configs --alter --client-metrics metrics --add-config no.such=1"),
        Call("client-metrics --alter --name metrics --match no.such=abc"),
        Call("client-metrics --describe"),
        Call("client-metrics --delete --name metrics"),
        Call("client-metrics --list"),
        Call("client-metrics --describe --name metrics"),
    ),
    "records": (
        Call("topics --create --topic records --partitions 1"),
        Call(f"console-producer --topic records {_KEYED}", stdin="a:one\nb:two\na:three\n"),
        Call(
            "console-producer --topic records --reader-property parse.headers=true --compression-codec zstd",
            stdin="h1:v1,h2:v2\tfour\nh1:v3\tfive\n",
        ),
        Call(f"console-consumer --topic records {_ALL} --max-messages 5"),
        Call(
            f"console-consumer --topic records {_ALL} --max-messages 5 --formatter-property print.key=true"
            " --formatter-property print.headers=true --formatter-property print.offset=true"
            " --formatter-property print.partition=true --formatter-property print.epoch=true"
        ),
        Call("console-consumer --topic records --partition 0 --offset 3 --max-messages 2 --timeout-ms 60000"),
        Call("console-consumer --topic records --partition 0 --offset latest --timeout-ms 200"),
        Call("console-consumer --include 'recor.*' --from-beginning --max-messages 5 --timeout-ms 60000"),
        Call("console-consumer --topic no-such-records --timeout-ms 200"),
        Call(f"console-consumer --topic records {_ALL} --max-messages 5 --isolation-level read_committed"),
        Call(f"console-consumer --topic records {_ALL} --max-messages 5 --command-property group.protocol=consumer"),
    ),
    "offsets": (
        Call("topics --create --topic offsets --partitions 2"),
        Call(f"console-producer --topic offsets {_KEYED}", stdin="a:one\nb:two\na:three\n"),
        Call("get-offsets --topic offsets --time earliest"),
        Call("get-offsets --topic-partitions 'offsets:0-1' --time -2"),
        Call("get-offsets --topic offsets --time -4"),
        Call("get-offsets --topic offsets --time latest-tiered"),
        Call("get-offsets --topic offsets --time 0 --partitions 0,1", shown="offsets"),
        Call("get-offsets --topic offsets --time 9999999999999"),
        Call("get-offsets --topic offsets --partitions 7"),
        Call("get-offsets --topic no-such"),
        Call("get-offsets --topic offsets --time soon"),
    ),
    "deletions": (
        Call("topics --create --topic deletions --replica-assignment 1,1"),
        Call(f"console-producer --topic deletions {_KEYED}", stdin=_TEN_LINES),
        Call("get-offsets --topic deletions"),
        Call("delete-records --offset-json-file {file:deletions}", is_sorted=True),
        Call("get-offsets --topic deletions --time earliest"),
        Call("delete-records --offset-json-file {file:deletions-beyond}"),
    ),
    "log-dirs": (
        Call("topics --create --topic sizes --partitions 2"),
        Call("log-dirs --describe --topic-list sizes"),
        Call("log-dirs --describe --topic-list sizes --broker-list 1"),
        Call("log-dirs --describe --topic-list sizes --broker-list 1,7"),
        Call("log-dirs --describe --topic-list no-such"),
    ),
    "transactions": (
        Call("topics --create --topic transactional --partitions 1"),
        Call(
            "producer-perf-test --topic transactional --num-records 30 --record-size 10 --throughput -1"
            " --transactional-id performance --transaction-duration-ms 1000"
        ),
        Call("transactions list"),
        Call("transactions list --duration-filter 1000000"),
        Call("transactions list --transactional-id-pattern 'perf.*'"),
        Call("transactions list --transactional-id-pattern '['"),
        Call("transactions describe --transactional-id performance"),
        Call("transactions describe --transactional-id no-such"),
        Call("transactions describe-producers --topic transactional --partition 0"),
        Call("transactions find-hanging --topic transactional"),
        Call("transactions find-hanging --broker-id 1"),
        Call("transactions abort --topic transactional --partition 0 --start-offset 5"),
        Call(
            "transactions abort --topic transactional --partition 0 --producer-id 77 --producer-epoch 0 --coordinator-epoch 0"
        ),
        Call("transactions force-terminate --transactional-id performance"),
        Call("transactions describe --transactional-id performance"),
        Call(f"console-consumer --topic transactional {_ALL} --max-messages 30 --isolation-level read_committed"),
    ),
    "features": (
        Call("features describe", hidden="streams.version"),
        Call("features upgrade --feature transaction.version=2"),
        Call("features upgrade --feature transaction.version=99"),
        Call("features downgrade --feature transaction.version=1 --dry-run"),
        Call("features upgrade --feature no.such=1"),
        Call("features downgrade --feature metadata.version=1"),
        Call("features disable --feature group.version --dry-run"),
    ),
    "quorum": (
        Call("metadata-quorum describe --status"),
        Call("metadata-quorum describe --replication"),
        Call("metadata-quorum describe --replication --human-readable"),
    ),
    "elections": (
        Call("topics --create --topic elections --partitions 1"),
        Call("leader-election --election-type preferred --topic elections --partition 0"),
        Call("leader-election --election-type unclean --topic elections --partition 0"),
        Call("leader-election --election-type preferred --path-to-json-file {file:election}"),
        Call("leader-election --election-type preferred --all-topic-partitions"),
        Call("leader-election --election-type preferred --topic no-such --partition 0"),
    ),
    "reassignments": (
        Call("topics --create --topic moves --partitions 2"),
        Call("reassign-partitions --generate --topics-to-move-json-file {file:to-move} --broker-list 1"),
        Call("reassign-partitions --execute --reassignment-json-file {file:moves}"),
        Call("reassign-partitions --verify --reassignment-json-file {file:moves}"),
        Call("reassign-partitions --execute --reassignment-json-file {file:moves} --throttle 1000000"),
        Call("reassign-partitions --verify --reassignment-json-file {file:moves}"),
        Call("reassign-partitions --list"),
        Call("reassign-partitions --execute --reassignment-json-file {file:moves-away}"),
        Call("reassign-partitions --execute --reassignment-json-file {file:moves-unknown}"),
        Call("reassign-partitions --cancel --reassignment-json-file {file:moves}"),
        Call("topics --describe --topic moves"),
        Call("configs --describe --topic moves"),
    ),
    "share-groups": (
        Call("topics --create --topic shared --partitions 2 --replication-factor 1"),
        Call("topics --create --topic shared-too --partitions 1 --replication-factor 1"),
        Call(f"console-producer --topic shared {_KEYED}", stdin=_TEN_LINES),
        Call("share-groups --list"),
        Call("share-groups --describe --group workers"),
        Call("share-groups --describe --all-groups"),
        Call("share-groups --reset-offsets --group workers --topic shared --to-earliest --dry-run", is_sorted=True),
        Call("share-groups --reset-offsets --group workers --topic shared --to-earliest --execute", is_sorted=True),
        Call("share-groups --list --state"),
        Call("share-groups --list --state stable"),
        Call("groups --list --share"),
        Call("share-groups --describe --group workers", is_sorted=True),
        Call("share-groups --describe --group workers --state"),
        Call("share-groups --describe --group workers --members --verbose"),
        Call("share-groups --describe --group workers --offsets --verbose", is_sorted=True),
        Call("share-groups --reset-offsets --group workers --topic shared:1 --to-latest --execute"),
        Call(
            "share-groups --reset-offsets --group workers --topic shared:1 --to-datetime 2030-01-01T00:00:00.000 --execute"
        ),
        Call("share-groups --reset-offsets --group workers --topic shared:7 --to-earliest --execute"),
        Call("share-groups --reset-offsets --group workers --topic no-such --to-earliest --execute"),
        Call("share-groups --reset-offsets --group workers --all-topics --to-earliest --execute", is_sorted=True),
        Call("share-groups --delete-offsets --group workers --topic shared-too"),
        Call("share-groups --delete-offsets --group workers --topic no-such"),
        Call("share-groups --delete-offsets --group workers --topic shared"),
        Call("share-groups --describe --group workers"),
        Call("share-groups --delete-offsets --group nobody --topic shared"),
        Call("configs --alter --group workers --add-config share.session.timeout.ms=50000"),
        Call("configs --describe --group workers", shown="share."),
        Call("share-groups --delete --group workers"),
        Call("share-groups --delete --group workers"),
        Call("share-groups --list"),
    ),
    "cluster": (
        Call("cluster cluster-id"),
        Call("cluster list-endpoints"),
        Call("cluster unregister --id 7"),
        Call("broker-api-versions", hidden=_NOT_SERVED),
        Call("acls --list"),
        Call("acls --add --allow-principal User:a --operation Read --topic x"),
        Call("acls --remove --force --allow-principal User:a --operation Read --topic x"),
        Call("groups --list --group-type share"),
    ),
    "acls": (
        Call("acls --list"),
        Call("acls --add --allow-principal User:a --operation Read --topic x", is_sorted=True),
        Call("acls --add --allow-principal User:a --operation Read --topic x", is_sorted=True),
        Call(
            "acls --add --allow-principal User:a --deny-principal User:b --allow-host 10.0.0.0/8 --deny-host 10.1.2.3"
            " --operation All --group g- --resource-pattern-type prefixed",
            is_sorted=True,
        ),
        Call("acls --add --allow-principal User:p --producer --topic x --transactional-id tx", is_sorted=True),
        Call("acls --add --allow-principal 'User:*' --consumer --topic '*' --group g-1", is_sorted=True),
        Call("acls --add --allow-principal User:CN=ops,O=x --operation Alter --cluster", is_sorted=True),
        Call("acls --add --allow-principal User:a --operation CreateTokens --user-principal User:b", is_sorted=True),
        Call("acls --add --allow-principal User:a --operation Describe --delegation-token t", is_sorted=True),
        Call("acls --add --allow-principal User:a --allow-host 10.0.0.0/33 --operation Read --topic x"),
        Call("acls --add --allow-principal a --operation Read --topic x"),
        Call("acls --list", is_sorted=True),
        Call("acls --list --principal User:a", is_sorted=True),
        Call("acls --list --topic x", is_sorted=True),
        Call("acls --list --topic x --resource-pattern-type match", is_sorted=True),
        Call("acls --list --group g-1 --resource-pattern-type match", is_sorted=True),
        Call("acls --list --group g- --resource-pattern-type prefixed", is_sorted=True),
        Call("acls --list --topic no-such", is_sorted=True),
        Call("acls --remove --force --allow-principal User:a --operation Read --topic x", is_sorted=True),
        Call("acls --remove --force --topic x", is_sorted=True),
        Call("acls --remove --force --group g-1 --resource-pattern-type match", is_sorted=True),
        Call("acls --remove --force --topic no-such", is_sorted=True),
        Call("acls --list", is_sorted=True),
    ),
    "scram-users": (
        Call("configs --describe --entity-type users"),
        Call("configs --alter --entity-type users --entity-name u --add-config SCRAM-SHA-256=[password=secret]"),
        Call("configs --describe --entity-type users --entity-name u"),
        Call(
            "configs --alter --entity-type users --entity-name v"
            " --add-config 'SCRAM-SHA-512=[iterations=8192,password=secret]'"
        ),
        Call("configs --describe --entity-type users", is_sorted=True),
        Call("configs --alter --user u --add-config producer_byte_rate=1024"),
        Call("configs --describe --user u", is_sorted=True),
        Call("configs --alter --user u --add-config SCRAM-SHA-256=[iterations=100,password=secret]"),
        Call("configs --alter --user u --add-config SCRAM-SHA-256=[iterations=99999,password=secret]"),
        Call("configs --alter --user u --delete-config SCRAM-SHA-512"),
        Call("configs --alter --user u --delete-config SCRAM-SHA-256"),
        Call("configs --alter --user no-such --delete-config SCRAM-SHA-512"),
        Call("configs --describe --user u"),
        Call("configs --describe --user no-such"),
    ),
    "delegation-tokens": (
        Call("delegation-tokens --command-config {file:alice} --describe"),
        Call(
            "delegation-tokens --command-config {file:alice} --create --max-life-time-period -1 --renewer-principal User:bob"
        ),
        Call("delegation-tokens --command-config {file:alice} --describe"),
        Call("delegation-tokens --command-config {file:bob} --describe"),
        Call("delegation-tokens --command-config {file:bob} --describe --owner-principal User:alice"),
        Call("delegation-tokens --command-config {file:bob} --describe --owner-principal User:carol"),
        Call("delegation-tokens --command-config {file:bob} --renew --renew-time-period -1 --hmac {hmac}"),
        Call("delegation-tokens --command-config {file:admin} --renew --renew-time-period -1 --hmac {hmac}"),
        Call(
            "delegation-tokens --command-config {file:alice} --create --max-life-time-period -1 --owner-principal User:bob"
        ),
        Call(
            "delegation-tokens --command-config {file:alice} --create --max-life-time-period -1 --renewer-principal Group:bob"
        ),
        Call("delegation-tokens --command-config {file:bob} --expire --expiry-time-period -1 --hmac {hmac}"),
        Call("delegation-tokens --command-config {file:bob} --expire --expiry-time-period -1 --hmac {hmac}"),
        Call("delegation-tokens --command-config {file:alice} --renew --renew-time-period -1 --hmac AAAA"),
        Call(
            "delegation-tokens --command-config {file:admin} --create --max-life-time-period 3600000 --owner-principal User:bob"
        ),
        Call("delegation-tokens --command-config {file:bob} --describe"),
        Call("delegation-tokens --command-config {file:alice} --describe"),
        Call("delegation-tokens --command-config {file:bob} --expire --expiry-time-period 1000 --hmac {hmac}"),
    ),
    "consumer-groups": (
        Call("topics --create --topic resets --replica-assignment 1,1"),
        Call(f"console-producer --topic resets {_KEYED}", stdin=_TEN_LINES),
        Call("consumer-groups --describe --group no-such"),
        Call(
            "consumer-groups --group resetting --reset-offsets --topic resets --to-earliest --dry-run", is_sorted=True
        ),
        Call(
            "consumer-groups --group resetting --reset-offsets --topic resets --to-earliest --execute", is_sorted=True
        ),
        Call("consumer-groups --group resetting --reset-offsets --topic resets:0 --to-offset 3 --execute"),
        Call("consumer-groups --group resetting --reset-offsets --topic resets --shift-by 1 --execute", is_sorted=True),
        Call("consumer-groups --group resetting --reset-offsets --topic resets --to-latest --export", is_sorted=True),
        Call(
            "consumer-groups --group resetting --reset-offsets --from-file {file:offsets-csv} --execute", is_sorted=True
        ),
        Call("consumer-groups --group resetting --reset-offsets --all-topics --to-current --execute", is_sorted=True),
        Call("consumer-groups --group resetting --reset-offsets --topic no-such --to-earliest --execute"),
        Call("consumer-groups --group resetting --describe", is_sorted=True),
        Call("consumer-groups --group resetting --describe --state"),
        Call("consumer-groups --group resetting --describe --members"),
        Call("consumer-groups --group resetting --describe --offsets --verbose", is_sorted=True),
        Call("consumer-groups --list", shown="resetting"),
        Call("consumer-groups --list --state Empty", shown="resetting"),
        Call("consumer-groups --list --type classic", shown="resetting"),
        Call("consumer-groups --group resetting --delete-offsets --topic resets:1"),
        Call("consumer-groups --group resetting --delete-offsets --topic no-such"),
        Call("consumer-groups --group resetting --delete"),
        Call("consumer-groups --group resetting --delete"),
        Call("consumer-groups --group no-such --delete-offsets --topic resets"),
        Call("groups --list", shown="resetting"),
    ),
    "benchmarks": (
        Call("topics --create --topic measured --partitions 1"),
        Call("producer-perf-test --topic measured --num-records 2000 --record-size 100 --throughput -1"),
        Call(
            "consumer-perf-test --topic measured --num-records 2000 --group measured-group --hide-header --timeout 60000"
        ),
        Call("e2e-latency --topic measured --num-records 10 --producer-acks all --record-size 20"),
    ),
    "verifiable": (
        Call("topics --create --topic verified --partitions 1"),
        Call("verifiable-producer --topic verified --max-messages 20 --acks -1 --value-prefix 7", until='"offset":19}'),
        Call(
            "verifiable-consumer --topic verified --group-id verified-classic --max-messages 20 --reset-policy earliest"
        ),
        Call(
            "verifiable-consumer --topic verified --group-id verified-consumer --max-messages 20 --reset-policy earliest"
            " --group-protocol consumer"
        ),
        Call("consumer-groups --describe --group verified-classic"),
        Call("consumer-groups --describe --group verified-consumer"),
        Call("consumer-groups --describe --group verified-consumer --state"),
    ),
    "coordinator-records": (
        Call("topics --create --topic watched --partitions 1"),
        Call("console-producer --topic watched", stdin="one\ntwo\n"),
        Call(f"console-consumer --topic watched {_ALL} --max-messages 2 --group watched-classic {_QUICK}"),
        Call(
            f"console-consumer --topic watched {_ALL} --max-messages 2 --group watched-consumer"
            " --command-property group.protocol=consumer"
        ),
        Call(
            "producer-perf-test --topic watched --num-records 3 --record-size 10 --throughput -1"
            " --transactional-id watched-id --transaction-duration-ms 1000"
        ),
        Call(
            "console-consumer --topic __consumer_offsets --from-beginning --timeout-ms 1500"
            " --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
            shown="watched-",
            is_sorted=True,
        ),
        Call(
            "console-consumer --topic __consumer_offsets --from-beginning --timeout-ms 1500"
            " --formatter org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter",
            shown="watched-",
            is_sorted=True,
        ),
        Call(
            "console-consumer --topic __transaction_state --from-beginning --timeout-ms 1500"
            " --formatter org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
            shown="watched-id",
        ),
    ),
    "streams-reset": (
        Call("topics --create --topic streams-in --partitions 2"),
        Call("topics --create --topic counting-store-changelog --partitions 2"),
        Call(f"console-producer --topic streams-in {_KEYED}", stdin="a:one\n"),
        Call(
            "consumer-groups --group counting --reset-offsets --topic streams-in --to-latest --execute", is_sorted=True
        ),
        Call("streams-application-reset --application-id counting --input-topics streams-in --force", is_sorted=True),
        Call("topics --list --topic 'counting.*'"),
        Call("consumer-groups --group counting --describe", is_sorted=True),
    ),
    "compatibility": (
        Call("topics --create --topic compatible --partitions 1"),
        Call(
            "client-compatibility --topic compatible --offsets-for-times-supported true --cluster-id-supported true"
            " --expect-record-too-large-exception false --num-cluster-nodes 1 --create-topics-supported true"
            " --describe-acls-supported false --describe-configs-supported true --idempotent-producer-supported true"
        ),
    ),
}
