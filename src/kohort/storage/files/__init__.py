"""System calls that change files, and the names, formats and checksums of the files in a data directory."""
