"""The APIs of a broker: the table of their costs, the handlers by API, and those that every client calls first."""
