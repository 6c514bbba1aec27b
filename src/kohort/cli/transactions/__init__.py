"""The commands of `kohort transactions`."""
