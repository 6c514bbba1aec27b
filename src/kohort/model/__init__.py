"""Values that every room shares: ids, error codes, the image of the cluster. Imports no other room."""
