"""
A coverage-guided fuzzer of the decoders of data from outside: requests, batches, compression, coordinator records, segments.

    python -m kohort_lab.fuzz_decoders batches --seconds 60

`rules` states for each decoder what holds for any bytes. `search` looks for bytes that break a rule; it runs as a file, because
atheris measures only code that is imported after it.
"""
