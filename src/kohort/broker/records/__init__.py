"""APIs on records: Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch."""
