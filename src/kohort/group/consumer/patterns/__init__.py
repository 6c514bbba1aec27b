"""Regular expressions over topic names that members subscribe to."""
