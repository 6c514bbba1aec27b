"""Transactions of the coordinator's log, and open transactions in the logs of topics."""
