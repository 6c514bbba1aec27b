"""
The entry point of the command line: `kohort NOUN VERB`.

An error is one sentence on stderr and exit code 2, also if standard output cannot be written. An interrupt is exit code 130. A
closed pipe (`kohort ... | head`) is exit code 1 without a message.
"""

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence

from kohort.model.errors import KohortError
from kohort.model.text import printable_lines

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 1
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a write that the operator can mend."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    return exit_code(lambda: _run_app(arguments))


def exit_code(command: Callable[[], None], program: str = "kohort") -> int:
    """Run a function and return the exit code of the program. What went wrong is a sentence on stderr."""
    try:
        code = _code_of_exit(command)
        sys.stdout.flush()
    except KohortError as exc:
        print(f"{program}: {printable_lines(str(exc))}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_CLOSED_PIPE
    except OSError as exc:
        if exc.errno not in _UNWRITABLE:
            raise
        _discard_stdout()
        print(f"{program}: {exc.filename or 'the output'} cannot be written: {exc.strerror}", file=sys.stderr)
        return EXIT_ERROR
    return code


def _code_of_exit(command: Callable[[], None]) -> int:
    try:
        command()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 0
    return 0


def _run_app(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        gc.disable()  # until the node runs: collections find no garbage in modules, and take a tenth of a start
        from kohort.cli.serve import serve

        serve(arguments[1:])
    elif arguments[:1] == ["pipeline"]:
        # Quick questions: the import of the other commands takes 80 ms and 5 MB.
        from kohort.cli.options import new_app
        from kohort.cli.pipeline.commands import app as pipeline

        app = new_app()
        app.add_typer(pipeline)
        app(args=arguments, prog_name="kohort")
    else:
        from kohort.cli.app import app

        app(args=arguments, prog_name="kohort")


def _discard_stdout() -> None:
    """Send buffered output to /dev/null. The interpreter would otherwise report the same error when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
