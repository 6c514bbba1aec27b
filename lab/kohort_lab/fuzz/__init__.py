"""
A fuzzer of brokers: valid requests of every API and version, changed ones, and a control client that must notice nothing.

    python -m kohort_lab.fuzz --seconds 60
    python -m kohort_lab.fuzz --frames 1000000 --seed 7
    python -m kohort_lab.fuzz --bootstrap 127.0.0.1:9092     # a broker that runs already, for tests only

`samples` makes requests from the schemas, `mutations` changes their bytes, `attack` sends them, `control` is the client beside
them, and `run` puts these together. Frames that have found a defect are kept in a corpus and sent in every run.
"""

from kohort_lab.fuzz.attack import Attack
from kohort_lab.fuzz.control import Control, ControlError
from kohort_lab.fuzz.mutations import mutate, mutate_frame
from kohort_lab.fuzz.run import Report, fuzz
from kohort_lab.fuzz.samples import Sampler

__all__ = ["Attack", "Control", "ControlError", "Report", "Sampler", "fuzz", "mutate", "mutate_frame"]
