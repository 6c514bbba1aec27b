"""Members, assignments and rebalances of groups of every kind."""
