"""The tools of operators for a store in a database: checks, copies, statements about its nodes."""
