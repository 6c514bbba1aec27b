"""Listeners: their names, addresses and security protocols; connections before they are authenticated."""
