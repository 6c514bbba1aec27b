"""Client quotas: rates of clients and addresses, and by how much they exceed what is configured."""
