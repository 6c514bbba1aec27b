"""`kohort groups`."""
