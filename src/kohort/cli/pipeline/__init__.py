"""`kohort pipeline`."""
