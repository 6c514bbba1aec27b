"""
The broker configuration `transaction.partition.verification.enable` (KIP-890), switched off for a moment.

A broker that verifies refuses transactional records unless the transaction coordinator has their partition in an ongoing
transaction. Brokers before Kafka 3.6 have no such configuration and never verify.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kohort.client.addresses import Address
from kohort.client.cluster import Client
from kohort.client.connection import error_name
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey

VERIFICATION = "transaction.partition.verification.enable"

BROKER = 4
"""Resource type of a broker in DescribeConfigs."""
DYNAMIC_BROKER_CONFIG = 2
"""Source of a value that is set at run time for this broker."""

_SET = 0
_DELETE = 1
_NOT_YET = frozenset({ErrorCode.REQUEST_TIMED_OUT})


@contextmanager
def verification_off(client: Client, leader: Address, *, may_switch: bool) -> Iterator[None]:
    """
    Make sure that a broker does not verify transactions. Afterwards the configuration is as before.

    Raises:
        ConfigError: the broker verifies, and `may_switch` is false, or the broker refuses the change.
    """
    broker_id = next((number for number, address in client.brokers().items() if address == leader), -1)
    before = _described(client, leader, broker_id)
    if before is None or before.value == "false":
        yield
        return
    if not may_switch:
        raise ConfigError(
            f"broker {broker_id} verifies transactions, so none can be made hanging there. Start it with {VERIFICATION}=false, "
            "or give --switch-verification-off, which changes this configuration of the broker for a moment"
        )
    is_set = before.config_source == DYNAMIC_BROKER_CONFIG
    _alter(client, leader, broker_id, _SET, "false")
    try:
        _wait(client, leader, broker_id, "false")
        yield
    finally:
        _alter(client, leader, broker_id, _SET if is_set else _DELETE, before.value if is_set else None)
        _wait(client, leader, broker_id, before.value)


def _described(client: Client, broker: Address, broker_id: int) -> Any:
    """Return the configuration as the broker describes it; None if it has none."""
    resource = messages.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker_id), configuration_keys=(VERIFICATION,)
    )
    response = client.send(ApiKey.DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(resources=(resource,)), at=broker)
    (result,) = response.results
    if result.error_code:
        raise ConfigError(
            f"broker {broker_id} does not show its configuration {VERIFICATION}: {error_name(result.error_code)}"
        )
    return next((config for config in result.configs if config.name == VERIFICATION), None)


def _alter(client: Client, broker: Address, broker_id: int, operation: int, value: str | None) -> None:
    change = messages.IncrementalAlterConfigsRequestAlterableConfig(
        name=VERIFICATION, config_operation=operation, value=value
    )
    resource = messages.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=BROKER, resource_name=str(broker_id), configs=(change,)
    )
    request = messages.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, at=broker).responses
    if result.error_code:
        reason = f" {result.error_message.rstrip('.')}" if result.error_message else ""
        raise ConfigError(
            f"broker {broker_id} refuses to change {VERIFICATION}:{reason} ({error_name(result.error_code)}); start it with "
            f"{VERIFICATION}=false instead"
        )


def _wait(client: Client, broker: Address, broker_id: int, value: str) -> None:
    """Wait until a broker has applied the configuration. It learns of a change from the metadata log."""

    def once() -> None:
        now = _described(client, broker, broker_id)
        if now is None or now.value != value:
            raise CoordinatorError(ErrorCode.REQUEST_TIMED_OUT)

    client.retried(once, _NOT_YET, f"broker {broker_id} did not apply {VERIFICATION}={value}")
