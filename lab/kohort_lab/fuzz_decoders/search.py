"""
Search for bytes that break a rule of a decoder, guided by the coverage of the code. It needs atheris.

New inputs that reach new code are kept in a directory, and the next run begins with them. An input that breaks a rule ends the
run with exit code 1; it is kept, too, and `--again FILE` runs it alone.
"""

import argparse
import secrets
import sys
from pathlib import Path
from random import Random
from typing import Any, Final

SECONDS: Final = 60
INPUT_BYTES_MAX: Final = 4096
KEPT: Final = Path("build") / "fuzz"
TARGETS: Final = ("requests", "batches", "compression", "records", "segments")
"""The decoders of `rules`, which may not be imported before atheris."""
_UNMEASURED: Final = ("kohort.testing",)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kohort_lab.fuzz_decoders", description=__doc__)
    parser.add_argument("target", choices=TARGETS, help="the decoder")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="how long (default %(default)s)")
    parser.add_argument("--seed", type=int, help="the seed (default: a new one)")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the directory of inputs (default %(default)s)")
    parser.add_argument("--again", type=Path, help="run only the input of this file")
    options = parser.parse_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: `make fuzz-decoders` installs it, or `pip install atheris`", file=sys.stderr)
        return 2
    run(atheris, options)
    return 0


def run(atheris: Any, options: argparse.Namespace) -> None:
    """Search until the time is over; ends the process. With `--again`, run one input."""
    target: str = options.target
    with atheris.instrument_imports(include=["kohort"], exclude=list(_UNMEASURED)):
        from kohort_lab.fuzz_decoders import rules

    if options.again is not None:
        rules.TARGETS[target](options.again.read_bytes())
        return
    seed = secrets.randbits(31) if options.seed is None else options.seed
    kept: Path = options.kept / target
    kept.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(rules.samples(target, Random(seed))):
        (kept / f"sample-{number}").write_bytes(sample[:INPUT_BYTES_MAX])
    found = options.kept / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}; inputs in {kept}, broken rules in {found}", flush=True)
    arguments = [
        f"-max_total_time={options.seconds}",
        f"-seed={seed}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-artifact_prefix={found}/",
        "-rss_limit_mb=2048",
        "-timeout=20",
        "-print_final_stats=1",
        str(kept),
    ]
    atheris.Setup([sys.argv[0], *arguments], rules.TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
