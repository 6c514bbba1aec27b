"""Configurations of brokers, topics and groups, and the APIs over them."""
