"""Several nodes on one store: their leases, the controller among them, and who leads which partition."""
