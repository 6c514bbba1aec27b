"""`kohort topics`."""
