"""
Tables as functions from frames to frames, without session, files or clock.

The rooms are `offsets`, `lag`, `burrow`, `groups`, `transactions` and `shares`. `contract` has the columns of each table and
their meaning; the docstring of a function has its rules. Rules that need the records in order are plain classes without Spark
(`groups.group_history`, `shares.share_history`, `burrow.history`), run over a frame by `replayed`.
"""
