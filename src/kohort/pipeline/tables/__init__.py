"""
Tables as functions from frames to frames, without session, files or clock.

The rooms are `offsets`, `lag`, `burrow`, `groups`, `transactions` and `shares`. The last `select` of a function is the schema
of its result; its docstring explains the columns. Rules that need the records in order are plain classes without Spark
(`groups.group_history`, `shares.share_history`, `burrow.history`), run over a frame by `replayed`.
"""
