"""Scripts, the scenarios that follow from them, and the run of one scenario on one broker."""
