"""A broker under comparison: its connections, its coordinators and the records in their logs."""
