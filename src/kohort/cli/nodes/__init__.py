"""`kohort cluster`: nodes that share a store."""
