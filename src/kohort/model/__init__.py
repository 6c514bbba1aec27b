"""Plain values that every room shares: ids, error codes, the image of the cluster. Imports nothing of ours."""
