"""
The laboratory of Kohort: what examines brokers and is no part of the product.

It imports the product; nothing of the product imports it.
"""
