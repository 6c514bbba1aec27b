"""The versions of each API that this broker serves."""

from kohort.wire.apis import ApiKey

NEWEST_SERVED: dict[ApiKey, int] = {}
"""The newest version of each API that Kohort serves up to an older version than Kafka; docs/unsupported.md names them too."""


def served_versions(api_key: ApiKey) -> tuple[int, int]:
    """The oldest and the newest version of an API that Kohort serves."""
    return api_key.oldest, min(api_key.newest_stable, NEWEST_SERVED.get(api_key, api_key.newest_stable))
