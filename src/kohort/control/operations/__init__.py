"""The operations of the control API, one module a subject."""
