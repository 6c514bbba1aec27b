"""A node among others on one store, as the server composes it."""
