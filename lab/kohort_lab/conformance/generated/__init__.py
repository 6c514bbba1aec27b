"""Generated scenarios: one from each seed."""
