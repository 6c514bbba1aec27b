"""`kohort demo`: an hour of a cluster in virtual time, and what the pipeline says of its logs."""
