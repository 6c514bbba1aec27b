"""The log of one partition: what all logs share, and the log on disk with its loading."""
