"""The error of an assignor."""

from kohort.model.errors import KohortError


class AssignorError(KohortError):
    """
    An assignor cannot compute a target assignment. The group keeps its epochs, and the member gets UNKNOWN_SERVER_ERROR.

    Source: Kafka PartitionAssignorException.
    """
