"""From a request to its handler: dispatch, quotas, and long requests in parts and in slices of time."""
