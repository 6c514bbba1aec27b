"""
What the rows of a log mean: functions from frame to frame, without session, files or clock.

`offset_commits` (with the fate of their transactions), `latest_offsets`, `end_offsets`, `lag`, `lag_over_time`, `time_lag`,
`as_of`, `commit_frequency`, `burrow_status` (by the rules in `burrow`), `rebalances`, `memberships`, `ownership`,
`share_state`, `topic_names`, `transactions`, `blocking_transactions`. The last `select` of each function is the schema of
what it returns; its docstring says what the columns mean. What has to be replayed in order is a plain class without Spark
(`group_history`, `share_history`, `burrow_history`), run over a frame by `replayed`.
"""
