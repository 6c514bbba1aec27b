"""The command line: noun, verb, one short module each; tables or `--json`."""
