"""The local engine: frames over DuckDB, in this process, with the part of PySpark's interface that the tables use."""
