"""
The entry point: `kohort NOUN VERB`.

What went wrong is one sentence on stderr and exit code 2; an interrupt is 130; a reader of our output that went away is no
error worth a word.
"""

import os
import sys
from collections.abc import Sequence

from kohort.model.errors import KohortError

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    try:
        code = _run_app(arguments)
        sys.stdout.flush()
    except KohortError as exc:
        print(f"kohort: {exc}", file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_UNREAD
    return code


def _run_app(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["serve"]:
            from kohort.cli.serve import serve

            serve(arguments[1:])
        else:
            from kohort.cli.app import app

            app(args=arguments, prog_name="kohort")
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 0
    return 0


def _silence_stdout() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, or the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
