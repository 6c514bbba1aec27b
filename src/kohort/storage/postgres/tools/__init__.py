"""What operators do with a store in a database: checks, copies, statements about its nodes."""
