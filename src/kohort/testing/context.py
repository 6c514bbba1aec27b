"""A request context for handlers that are called directly."""

from kohort.model.fixed_context import FixedContext, take_all

__all__ = ["FixedContext", "take_all"]
