"""`python -m kohort_lab.fuzz`: attack a broker, print a report. Exit code 1 if the broker has failed."""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from kohort.client.addresses import parse_bootstrap
from kohort_lab.fuzz.run import ATTACKERS, fuzz, read_corpus

SECONDS = 60.0
FAILED = Path("build")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kohort_lab.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, help=f"how long to attack (default {SECONDS:g}, unless --frames is given)"
    )
    parser.add_argument("--frames", type=int, help="how many frames to send")
    parser.add_argument("--seed", type=int, help="the seed of the frames (default: a new one)")
    parser.add_argument("--attackers", type=int, default=ATTACKERS, help="connections at a time (default %(default)s)")
    parser.add_argument("--corpus", type=Path, help="a file of frames that are sent first, and changed")
    parser.add_argument("--bootstrap", help="a broker that runs already; its data may be lost")
    options = parser.parse_args(arguments)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    report = fuzz(
        seed,
        seconds=SECONDS if options.seconds is None and options.frames is None else options.seconds,
        frames=options.frames,
        attackers=options.attackers,
        corpus=read_corpus(options.corpus) if options.corpus else (),
        bootstrap=parse_bootstrap(options.bootstrap)[0] if options.bootstrap else None,
    )
    print(report)
    if not report.failures:
        return 0
    path = FAILED / f"fuzz-{seed}.jsonl.gz"
    report.write_frames(path)
    print("\n".join(report.failures), file=sys.stderr)
    print(f"The last frames are in {path}; send them again with --corpus {path}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
