"""
ACLs as settings of the catalog, and the index that follows the durable ones.

The name of a setting is the ACL, as a JSON array in the order of its fields, so that equal ACLs are one entry and a deletion
says what it deletes. The value has no fields.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import Setting
from kohort.model.errors import ConfigError
from kohort.model.limits import ACL_BYTES_MAX, ACL_PREFIX_LENGTH_MAX
from kohort.security.acls.acl import Acl, PatternType
from kohort.security.acls.decisions import no_principal
from kohort.security.acls.hosts import parse_range
from kohort.security.acls.index import AclIndex
from kohort.security.operations import CLUSTER_NAME, ResourceType

ACLS: Final = "acl"
"""The kind of these settings."""
_decode: Final = msgspec.json.Decoder(Acl).decode


def setting_name(acl: Acl) -> str:
    """The name of an ACL's setting."""
    return msgspec.json.encode(acl).decode()


def stored(acl: Acl) -> Setting:
    return Setting(ACLS, setting_name(acl), {})


def deleted(acl: Acl) -> Setting:
    return Setting(ACLS, setting_name(acl), None)


def acl_of(name: str, _fields: Mapping[str, Any]) -> Acl:
    """
    The ACL of a setting.

    Raises:
        ConfigError: the setting is none that this version stores.
    """
    try:
        acl = _decode(name)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"The access rule cannot be read: {error}") from error
    if setting_name(acl) != name:
        raise ConfigError("The access rule has another form than this version writes")
    return checked(acl)


def checked(acl: Acl) -> Acl:
    """
    Check the texts of an ACL, in Kafka's order.

    Raises:
        ConfigError: one is invalid; with Kafka's message.
    """
    check_name(acl.resource_type, acl.name)
    if ":" not in acl.principal:
        raise ConfigError(no_principal(acl.principal))
    if not acl.host:
        raise ConfigError("Host pattern cannot be null or empty")
    if "/" in acl.host:
        try:
            parse_range(acl.host)
        except ValueError as error:
            raise ConfigError(f"Invalid CIDR notation '{acl.host}': {error}") from error
    if acl.pattern == PatternType.PREFIXED and len(acl.name) > ACL_PREFIX_LENGTH_MAX:
        raise ConfigError(f"A prefix of resource names can have at most {ACL_PREFIX_LENGTH_MAX} characters")
    if sum(len(text.encode()) for text in (acl.name, acl.principal, acl.host)) > ACL_BYTES_MAX:
        raise ConfigError(
            f"The resource name, the principal and the host can have at most {ACL_BYTES_MAX} bytes together"
        )
    return acl


def check_name(resource_type: int, name: str) -> None:
    """
    Check the name of a resource. Kafka does so before it looks at the rest.

    Raises:
        ConfigError: as for `checked`.
    """
    if resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise ConfigError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise ConfigError("Invalid empty resource name")


class StoredAcls:
    """
    The ACLs of the catalog.

    Attributes:
        index: the durable ACLs.
        version: raised by each change of the index.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.index = AclIndex(map(_decode, catalog.settings(ACLS)))
        self.version = 0
        self._listeners: list[Callable[[], None]] = []
        catalog.watch_settings(ACLS, self._on_changed)

    def watch(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, before it is answered."""
        self._listeners.append(listener)

    def is_stored(self, acl: Acl) -> bool:
        """Whether the ACL is durable, and no change in progress deletes it."""
        return acl in self.index and setting_name(acl) in self._catalog.newest_settings(ACLS)

    @property
    def count(self) -> int:
        """The number of ACLs when all changes in progress are durable."""
        return len(self._catalog.newest_settings(ACLS))

    def _on_changed(self, settings: list[Setting]) -> None:
        for setting in settings:
            acl = _decode(setting.name)
            if setting.value is None:
                self.index.remove(acl)
            else:
                self.index.add(acl)
        self.version += 1
        for listener in self._listeners:
            listener()
