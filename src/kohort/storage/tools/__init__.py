"""Tools over a data directory: dump and verify."""
