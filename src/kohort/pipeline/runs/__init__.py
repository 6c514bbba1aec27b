"""
Runs: tables published from a source, each time only what is new of it read.

What the logs said is kept as rows (`bronze`), the tables are made of these, and one file names the rows, the tables and how far
the logs are read (`state`): it is replaced last, so a run that is killed at any moment never was.
"""
