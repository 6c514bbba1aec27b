"""The catalog: what a cluster stores durably besides its logs. Its entries, views, changes by requests, and repair."""
