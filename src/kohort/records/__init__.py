"""
Every coordinator record of Apache Kafka 4.4.0, defined once: topics `__consumer_offsets`, `__transaction_state` and
`__share_group_state`, and the consumer protocol that is embedded in records of classic groups.

`schemas.json` is the definition: the fields of each key and of every version of each value. Value classes, encoders and
decoders are compiled from it at their first use. To add a record, add it there and run `tools/record_stubs.py`.

Public modules:

- `values`: the value classes, such as `values.OffsetCommit` and `values.ConsumerGroupMetadataTombstone`
- `serde`: `CoordinatorRecordSerde`, records to keys and values and back
- `schema`: `RecordType`, the schema of a record
- `json_form`: records in the JSON form of Kafka's own converters
- `consumer_protocol`: subscriptions and assignments of consumers in classic groups
- `offset_commits`: the fast path of OffsetCommit, whose parts the offsets module of `kohort.group` prepares
"""

__all__ = ["consumer_protocol", "json_form", "offset_commits", "schema", "serde", "values"]
