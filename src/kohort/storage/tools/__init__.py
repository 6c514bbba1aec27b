"""Tools for the files of a data directory: dump and verify."""
