"""Configurations of brokers, topics and groups, and their APIs."""
