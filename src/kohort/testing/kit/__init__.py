"""What a test can do with a broker over its control port: faults, holds, events, waits, time, snapshots."""
