"""
The transaction coordinator: transactional ids, their producer ids and epochs, and the transactions that they run.

`service.py` has the APIs, `shard.py` the state machine of one partition of `__transaction_state`, `markers.py` the second phase
of a commit or abort.
"""
