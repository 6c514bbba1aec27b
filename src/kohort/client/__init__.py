"""A small blocking client of Kafka clusters: for the command line, the pipeline, and whoever asks a few questions."""
