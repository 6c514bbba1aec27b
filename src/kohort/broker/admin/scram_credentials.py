"""
DescribeUserScramCredentials (50), version 0: no user has credentials, because there is no SASL.

Source: KIP-554; Kafka ScramPublisher, ScramImage.describe.
"""

from collections import Counter
from collections.abc import Generator

from kohort.broker.ports import Context
from kohort.machine.gradual import HANDLER_STEP, chunks
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m


def describe_user_scram_credentials(
    request: m.DescribeUserScramCredentialsRequest,
    _context: Context,
    _reply: Reply[m.DescribeUserScramCredentialsResponse],
) -> Generator[None, None, m.DescribeUserScramCredentialsResponse]:
    counts: Counter[str] = Counter()
    for users in chunks(request.users or (), HANDLER_STEP):
        counts.update(user.name for user in users)
        yield
    results = []
    for name, count in counts.items():
        results.append(_twice(name) if count > 1 else _absent(name))
        if len(results) % HANDLER_STEP == 0:
            yield
    return m.DescribeUserScramCredentialsResponse(error_message="", results=results)


def _twice(name: str) -> m.DescribeUserScramCredentialsResult:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return m.DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message
    )


def _absent(name: str) -> m.DescribeUserScramCredentialsResult:
    message = f"Attempt to describe a user credential that does not exist: {name}"
    return m.DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message
    )
