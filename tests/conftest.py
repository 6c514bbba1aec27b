"""What holds for every test."""

from hypothesis import settings

# How long an example takes depends on what else the machine does; a test says what is right, not how fast.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")
