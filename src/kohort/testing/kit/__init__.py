"""The actions of a test on a broker over its control port: faults, holds, events, waits, time, snapshots."""
