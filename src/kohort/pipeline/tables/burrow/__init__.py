"""Partition statuses as LinkedIn Burrow evaluates them."""
