"""
Limits of what a client can make the broker hold. docs/limits.md describes each of them and the effect of reaching it.

Some limits are configurations with Kafka's names; these are the others.
"""

from typing import Final

LOG_WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of the log lines that wait for a slow reader of stderr. Further lines are dropped and counted."""

# Replies

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Unsent replies of one connection. Beyond it the client is slow: its next requests are not read until it has caught up."""
COUNTED_BYTES_MIN: Final = 64 * 1024
"""Unsent replies of one connection that are not counted for `UNSENT_BYTES_MAX`."""
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""
Unsent replies of all connections with more than `COUNTED_BYTES_MIN`. Beyond it, Fetch responses have at most
`FETCH_BYTES_ALWAYS` of records (or one batch), and clients that take nothing for `STALLED_SECONDS_MAX` are disconnected. At
twice the size, a client that leaves a large answer is disconnected at once.
"""
FETCH_BYTES_ALWAYS: Final = 1024 * 1024
FETCH_ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Records of one Fetch response, or one batch if that is larger. The client fetches the rest with its next request."""
LOG_READS_MAX: Final = 16
"""Reads of logs from the disk at the same time, one of a log. Further ones wait, one for each connection."""
FETCH_TURN_BYTES_MAX: Final = 8 * 1024 * 1024
"""Records of the Fetch responses of one turn of the event loop; the response that exceeds it is still sent. Further Fetch
requests wait for the next turns."""
STALLED_SECONDS_MAX: Final = 10.0
CLOSING_SECONDS_MAX: Final = 10.0
"""How long a connection that the broker closes waits for its client to take the last replies."""

# Requests

IN_FLIGHT_MAX: Final = 1_000
"""Requests of one connection that wait for their replies."""
IN_FLIGHT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of these requests; the request that exceeds it is still handled."""
STRING_BYTES_MAX: Final = 32_767
"""Size of a string of the protocol, of compact ones too, as in Kafka. A longer one closes the connection."""
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
"""Requests that have arrived and are not handled yet, of all connections, unless `queued.max.request.bytes` is set; up to
`COUNTED_BYTES_MIN` of a connection do not count. Beyond it, large requests are read one at a time, and clients that do not go
on for `STALLED_SECONDS_MAX` are disconnected."""
ARRAY_ELEMENTS_MAX: Final = 1_000_000
"""
Elements of one array of any message, also of an answer that a client reads and of a coordinator record, as in Kafka. A message
with more is not read.
"""
SECTION_TAGS_MAX: Final = 10_000
"""The same for the tagged fields at the end of a message or of a struct in it."""
HEADER_TAGS_MAX: Final = 1_000
"""Tagged fields of one header, none of which is known. More close the connection; Kafka accepts `SECTION_TAGS_MAX`."""
SHORT_ELEMENTS_MAX: Final = 1_000
"""Elements of all arrays of a request. With more, a request is read, handled and answered in slices between other requests."""
REQUEST_ELEMENTS_MAX: Final = 50_000
"""Elements of all arrays of a request, and unknown tagged fields. More close the connection."""
OFFSET_FETCH_ELEMENTS_MAX: Final = 200_000
"""The same for OffsetFetch: tools ask for all partitions of a thousand groups at once."""
WHOLE_ELEMENTS_MAX: Final = 20_000
"""The same for APIs whose requests take effect as a whole and are not handled in parts, such as JoinGroup and OffsetCommit."""
LONG_REQUESTS_MAX: Final = 8
"""Long requests that are worked on in turns; further ones wait, and only their frames take memory."""
ABANDONED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Requests with large batches that are worked on although their client has disconnected. Further ones are dropped."""
CONFIGS_MAX: Final = 1_000
"""Configurations of one resource in a request. There are not as many keys, so more are INVALID_CONFIG."""

CONFIG_LENGTH_MAX: Final = 32_767
"""Bytes of a configuration's name, and of its value. Longer ones are INVALID_CONFIG, as in Kafka."""
CONFIG_SHOWN_LENGTH_MAX: Final = 1_000
"""Characters of an invalid value in the message that refuses it; the rest is left out."""
CLIENT_METRICS_SUBSCRIPTIONS_MAX: Final = 1_000
"""Subscriptions of client metrics. A change that would make one more is POLICY_VIOLATION."""
CLIENT_METRICS_PATTERNS_MAX: Final = 16
"""Expressions of a subscription, with at most `PATTERN_CLASSES_MAX` Unicode classes together. More are INVALID_CONFIG."""
CLIENT_METRICS_INSTRUCTIONS_MAX: Final = 8_192
"""Instructions of the compiled expressions of a subscription together. More are INVALID_CONFIG."""
CLIENT_PROPERTY_LENGTH_MAX: Final = 1_024
"""Characters of a property of a client that is matched with such expressions. A longer one matches none."""

# Appends that a slow disk has not taken

UNWRITTEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Appends in memory that are not in their files yet. Beyond it appends are KAFKA_STORAGE_ERROR until the disk answers."""
WRITTEN_BYTES_KEPT: Final = 32 * 1024 * 1024
"""The newest appends that stay in memory after they were written, so that readers at the end of a log wait for no disk."""

# Record batches

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The decompressed records of a batch: a full batch of 1 MiB at a ratio of 128. More are refused."""
COMPRESSED_PARTS_AT_ONCE: Final = 1_000
"""Members of gzip, blocks of snappy or LZ4 that are decompressed on the event loop. A batch with more has a thread of its own,
and a push of metrics with more is refused: each part takes a microsecond or two, and may be empty."""
BATCH_RECORDS_MAX: Final = 1_000_000
"""Records in a batch of a producer: the largest `batch.num.messages` of librdkafka. More are refused."""
UNORDERED_RECORDS_MAX: Final = 65_536
"""
Records in a batch whose offsets do not rise; such a batch with more is refused. A record object takes a hundred times the
memory of the smallest encoded record, so some kB of equal compressed records would take gigabytes. Rising offsets do not
compress that well.
"""
RECORD_ERRORS_MAX: Final = 1_000
"""Record errors of one batch in an answer to Produce; the message has the number of all."""

# State

PRODUCERS_OF_PARTITION_MAX: Final = 100_000
"""
Producers without an open transaction whose state a partition keeps, a kilobyte each. For a new one, one that was not used
for long is forgotten, as if its id had expired.
"""
FETCH_SESSION_PARTITIONS_MAX: Final = 500_000
"""Partitions of all fetch sessions. Beyond it, clients fetch without a session."""
SHARE_SESSION_PARTITIONS_MAX: Final = 500_000
"""Partitions of all share sessions. Beyond it, a session is not opened or does not grow."""
UNPUBLISHED_TOPICS_MAX: Final = 10_000
"""Topics that Metadata has created and does not name yet. Beyond it, the oldest is named at once."""
PENDING_OFFSETS_MAX: Final = 20_000
"""
Offsets that a transaction leaves pending in one partition of `__consumer_offsets`; a commit refuses those beyond.
Its end is one operation, which takes a microsecond an offset. Kafka has no limit.
"""
SHARE_WRITE_BATCHES_MAX: Final = 10_000
"""Batches of one write of a share partition: the largest `group.share.max.partition.max.record.locks`. A write with more is
INVALID_REQUEST: they are combined with the stored ones in one step."""
SHARE_STATE_BATCHES_MAX: Final = 50_000
"""Batches of delivery states of one share partition, whose snapshot is one record; a write that would leave more is
INVALID_REQUEST. Kafka has no limit, and fails to write the snapshot."""
PATTERNS_OF_GROUP_MAX: Final = 100
"""Regular expressions of one consumer group. A further one is refused."""
PATTERN_LENGTH_MAX: Final = 1_024
"""Characters of a regular expression of a client: over topic names, transactional ids or properties of clients."""
PATTERN_CLASSES_MAX: Final = 4
"""Unicode classes such as `\\pL` in a regular expression; each takes some milliseconds to compile."""
PATTERN_PROGRAM_BYTES_MAX: Final = 128 * 1024
"""Memory of a compiled regular expression: about 8000 instructions."""
MATCH_STEPS_MAX: Final = 2_000_000
"""
Instructions of a regular expression times the bytes of a text that it is matched with: 8000 instructions and a topic name. The
match takes 16 ms at most. ListTransactions answers INVALID_REGULAR_EXPRESSION for more; a property of a client does not match.
"""

SCRAPERS_MAX: Final = 500
"""Connections of a listener for metrics. Further ones are answered with 503."""
SCRAPE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Texts of a listener for metrics that scrapers have not taken, each counted once. Further scrapes are answered with 503."""

# The exporter of the pipeline (another process than the broker)

EXPORTED_PARTITIONS_MAX: Final = 100_000
"""Partitions of groups with a committed offset that the exporter follows. Commits to further ones are dropped and counted."""
EXPORTED_GROUPS_MAX: Final = 50_000
"""Groups with members that the exporter follows. Records of further ones are dropped and counted."""
EXPORTED_PENDING_COMMITS_MAX: Final = 100_000
"""Commits of open transactions that the exporter holds. Further ones are dropped and counted."""
EXPORTED_TRANSACTIONAL_IDS_MAX: Final = 100_000
"""Transactional ids that the exporter follows. Records of further ones are dropped and counted."""
EXPORTED_OPEN_PRODUCERS_MAX: Final = 10_000
"""Open transactions of one partition that the exporter of a directory follows. Further ones are ignored and counted."""
EXPORTED_OPEN_TRANSACTIONS_MAX: Final = 100
"""Open transactions that have a series of their own, the oldest ones."""
CHECKPOINT_COMMITS_MAX: Final = 200_000
"""Rows of the history of a Spark query: batches times partitions. Of older batches beyond it, evenly spaced ones are read."""

# Settings, quotas and telemetry of clients

CONFIGURED_GROUPS_MAX: Final = 10_000
"""Groups with configurations of their own, which need not exist. More are POLICY_VIOLATION."""
SETTINGS_MAX: Final = 10_000
"""Entities with client quotas; SCRAM credentials. More are POLICY_VIOLATION."""
SCRAM_NAME_LENGTH_MAX: Final = 1_024
"""Characters of the user of a SCRAM credential. Longer ones are UNACCEPTABLE_CREDENTIAL."""
SCRAM_SALT_BYTES_MAX: Final = 1_024
"""The salt of a SCRAM credential, and its salted password, which is 32 or 64 bytes. Longer ones are UNACCEPTABLE_CREDENTIAL."""
SCRAM_STORED_BYTES_MAX: Final = 64 * 1024
"""A stored SCRAM credential. A larger one, of an earlier version, is set aside by the start."""
SCRAM_MESSAGE_BYTES_MAX: Final = 32 * 1024
"""A client's message of SCRAM. A longer one fails the authentication. Kafka's bound is that of a frame: half a megabyte, which
would hold the event loop."""
ACCESS_TOKEN_BYTES_MAX: Final = 64 * 1024
"""An access token of OAUTHBEARER. A longer one is refused."""
SIGNING_KEYS_MAX: Final = 100
"""Keys of a JSON Web Key Set. A set with more is not used."""
KEY_SET_BYTES_MAX: Final = 1024 * 1024
"""A JSON Web Key Set, read from a file or a server. A larger one is not used."""
UNKNOWN_KEYS_MAX: Final = 16
"""Names of keys that an issuer does not have, which are not asked for again within a minute. As in Kafka."""
DERIVED_CREDENTIALS_MAX: Final = 1_000
"""SCRAM credentials that were derived from a password or a delegation token and are kept for the next login. The least recently
used one is derived again."""
QUOTA_NAME_LENGTH_MAX: Final = 1_024
"""Characters of a name of an entity with client quotas. An entity with a longer one is INVALID_REQUEST."""
QUOTA_RATES_MAX: Final = 10_000
"""Measured rates of clients and addresses that have a quota, of each kind. The least recently used one is forgotten."""
TOKENS_MAX: Final = 10_000
"""Delegation tokens, expired ones until the next sweep. A further one is POLICY_VIOLATION."""
TOKENS_OF_REQUESTER_MAX: Final = 1_000
"""Delegation tokens that one user has made. A further one is POLICY_VIOLATION: any user may make tokens."""
TOKEN_RENEWERS_MAX: Final = 32
"""Renewers of a delegation token. A token with more is INVALID_REQUEST."""
TOKEN_PRINCIPALS_BYTES_MAX: Final = 8 * 1024
"""Types and names of the owner and the renewers of a delegation token together. A token with more is INVALID_REQUEST."""
THROTTLED_SOCKETS_MAX: Final = 1_000
"""Accepted sockets beyond the rate of their address, which are closed within a second. Further ones are closed at once."""
CLIENT_INSTANCES_MAX: Final = 16_384
"""Instances of clients that ask for subscriptions of metrics. The least recently used one is forgotten. As in Kafka."""
TELEMETRY_UNPACKED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Decompressed metrics of one push. More are refused."""
TELEMETRY_POINTS_MAX: Final = 2_000
"""Data points of one push. Further ones are dropped."""
TELEMETRY_FIELDS_MAX: Final = 100_000
"""Fields of the messages of one push that are read: 50 for each data point. Pushes with more are refused."""
TELEMETRY_SERIES_MAX: Final = 20_000
"""Pushed metrics with different names or labels that /metrics shows. Further ones are dropped."""
TELEMETRY_TEXT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Names and labels of these metrics. Metrics for which there is no room are dropped."""
TELEMETRY_NAMES_MAX: Final = 1_000
"""Names of these metrics. Metrics with further ones are dropped."""
TELEMETRY_ATTRIBUTES_MAX: Final = 16
"""Labels of a pushed metric. Further ones are left out."""
TELEMETRY_TEXT_LENGTH_MAX: Final = 200
"""Characters of a name, a label or its value. Metrics with longer names are dropped; labels are cut."""

# Access rules

ACLS_MAX: Final = 100_000
"""ACLs, a kilobyte or two each. A further one is POLICY_VIOLATION."""
ACL_BYTES_MAX: Final = 2_048
"""Bytes of the resource name, the principal and the host of an ACL together. An ACL with more is INVALID_REQUEST."""
ACL_PREFIX_LENGTH_MAX: Final = 249
"""Characters of a prefix of resource names, as in a topic name. An ACL with a longer one is INVALID_REQUEST: a decision looks
at every length that prefixes have."""
ACL_CHANGES_MAX: Final = 10_000
"""ACLs that one request creates, or that one deletes. More are POLICY_VIOLATION or INVALID_REQUEST, and nothing is done. As in
Kafka."""
ACL_FILTER_STEPS_MAX: Final = 2_000_000
"""ACLs that the filters of one DeleteAcls look at. With more, the request is INVALID_REQUEST and nothing is done."""
ACL_MATCHES_MAX: Final = 50_000
"""ACLs in the answer to one DeleteAcls, each as often as filters select it. With more, as above."""
ACL_DECISIONS_KEPT: Final = 10_000
"""Decisions of the authorizer that are kept until the next change of ACLs. Then all are forgotten."""
ACL_DECISION_LENGTH_MAX: Final = 512
"""Characters of the user and the resource of such a decision. Others are decided anew each time."""
AUDIT_TEXT_LENGTH_MAX: Final = 1_000
"""Characters of a name or a rule in the audit log; the rest is left out."""
REFUSED_USERS_MAX: Final = 1_000
"""Pairs of a user and an API whose refusals are counted by themselves. Those of further users are counted together."""

# Connections that are not authenticated

DISTINGUISHED_NAME_LENGTH_MAX: Final = 8_192
"""Characters of the name in a client's certificate. A longer one has no user, and its connection is closed."""
PENDING_CONNECTIONS_MAX: Final = 1_000
"""
Connections of all listeners together that are not authenticated yet, on listeners with TLS or SASL. For a further one the
oldest is disconnected.
"""
PENDING_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of handshakes and unfinished frames of all these connections. Beyond it, the one with most is disconnected."""
HANDSHAKE_BYTES_MAX: Final = 128 * 1024
"""Bytes that a client may send up to the end of the TLS handshake, mostly certificates. More close the connection."""
HELD_LOGIN_BYTES_MAX: Final = 1024 * 1024
"""Bytes that may arrive from a client before the broker works on its authentication, during which it is not read."""
LOGIN_THREADS: Final = 2
"""Threads for handshakes and the verification of credentials. Further ones wait for their turn."""

# The testing kit

FAULTS_MAX: Final = 10_000
"""Faults of the control port, with those that were removed; the oldest of these are forgotten. Further faults are refused."""
CONTROL_BODY_BYTES_MAX: Final = 1024 * 1024
"""Bytes of the body of a request to the control port. A larger one is answered with 413."""
CONTROL_ELEMENTS_MAX: Final = 10_000
"""Elements of the arrays of such a body: APIs of a filter, elements of an answer, records. More are answered with 422."""
CONTROL_CONNECTIONS_MAX: Final = 500
"""Connections to the control port. Further ones are answered with 503."""
CONTROL_WAITS_MAX: Final = 400
"""Requests to the control port that wait for something of one kind. Further ones are answered with 429."""
HOLDS_MAX: Final = 1_000
"""Holds of the control port, with those that have ended; the oldest of these are forgotten. Further holds are refused."""
HELD_MAX: Final = 10_000
"""What one hold holds at a time, and what one black hole swallows. Further requests are not held."""
JOURNAL_ENTRIES_MAX: Final = 10_000
"""Requests in the journal of the control port; the oldest ones make room."""
JOURNAL_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same in bytes of their JSON."""
SNAPSHOTS_MAX: Final = 100
"""Snapshots of the control port. They share their batches with the logs. Further ones are refused."""
MUTED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Answers that a connection in a black hole keeps."""

# Requests between nodes

PEER_REQUESTS_MAX: Final = 10_000
"""Requests of this node that wait on one connection to another node. Further ones fail, and who asks tries again later."""
PEER_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of these requests. The first one may be larger."""
FORWARDED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Requests of clients that wait for the controller, of all connections. The first one may be larger; a further one is answered
REQUEST_TIMED_OUT at once."""
PEER_ELEMENTS_MAX: Final = 5_000
"""Partitions in one request of this node, such as WriteTxnMarkers, and batches of share states. Others are in the next one."""
AUTO_CREATIONS_MAX: Final = 1_000
"""Topics that a node has asked the controller to create, because clients have named them. A further one is created when it is
named again."""
