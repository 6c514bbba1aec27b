"""`kohort pipeline`: tables from the logs of group coordinators."""
