"""`kohort groups`: list, describe and delete groups, and move their offsets."""
