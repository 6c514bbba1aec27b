"""`python -m kohort` is the command `kohort`, for environments whose scripts are not on the PATH."""

from kohort.cli.main import main

main()
