"""Requests of clients: filters, faults and their effects, holds, the journal."""
