"""`python -m kohort_lab.served_nodes`: faults at random under real clients, on three nodes that share a store."""

import argparse
from pathlib import Path

from kohort.model.leases import LEASE_MS_MAX, LEASE_MS_MIN
from kohort_lab.checks import run_check
from kohort_lab.served_nodes.torture import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kohort_lab.served_nodes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the faults")
    parser.add_argument("--faults", type=int, default=None, help="end after so many")
    parser.add_argument("--lease-ms", type=int, default=2000, help=f"from {LEASE_MS_MIN} to {LEASE_MS_MAX}")
    parser.add_argument("--fault", action="append", default=[], help="a kind of fault; all of them without it")
    parser.add_argument("--seed", type=int, default=None, help="of the choice of faults")
    parser.add_argument("--directory", type=Path, help="for logs, which are kept; default: a temporary one")
    parser.add_argument("--quiet", action="store_true", help="print the result only")
    arguments = parser.parse_args()
    return run_check(
        arguments,
        lambda directory, rng, report: run(
            directory,
            rng,
            report,
            seconds=arguments.seconds,
            lease_ms=arguments.lease_ms,
            kinds=arguments.fault,
            faults_max=arguments.faults,
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())
