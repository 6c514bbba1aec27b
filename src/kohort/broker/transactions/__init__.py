"""Producer ids, transaction markers and producer state, as the broker's APIs show them."""
