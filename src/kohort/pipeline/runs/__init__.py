"""
Runs: incremental publication of tables. Each run reads only what is new in the source.

A run keeps the decoded rows (`bronze`) and makes the tables from them. One file names the kept rows, the tables and the
positions of the logs (`state`). It is replaced last, so a run that is killed at any moment changes nothing.
"""
