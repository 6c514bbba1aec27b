"""The commands of `kohort acls`. Source: Kafka AclCommand."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.completion import complete_groups, complete_topics, complete_transactional_ids
from kohort.cli.options import AsJson
from kohort.cli.output import echo, print_json, print_rows, print_table, raise_all
from kohort.cli.security.words import (
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    check_principal,
    code_of,
    name_of,
    words_of,
)
from kohort.client.cluster import Client
from kohort.client.connection import reason, refusal
from kohort.model.errors import ConfigError
from kohort.security.acls.acl import ANY_HOST, PatternType, Permission
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

app = ClusterApp(
    "acls",
    help="List, create and delete ACLs: which user may do what to which resource.",
    epilog="""\
A broker without an authorizer refuses these commands; see authorizer.class.name in `kohort config`.

\b
Examples:
  kohort acls create --principal User:alice --producer --topic orders
  kohort acls create --principal User:bob --consumer --topic orders --group billing
  kohort acls list --principal User:alice""",
)

_COLUMNS: Final = ("principal", "permission", "operation", "resource_type", "name", "pattern", "host")
_ANY: Final = 1

Topics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC", autocompletion=complete_topics, help="A topic; repeatable. * is any topic."
    ),
]
Groups: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--group", metavar="GROUP", autocompletion=complete_groups, help="A group; repeatable. * is any group."
    ),
]
TransactionalIds: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--transactional-id",
        metavar="ID",
        autocompletion=complete_transactional_ids,
        help="A transactional id; repeatable.",
    ),
]
TokenIds: TypeAlias = Annotated[
    list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token; repeatable.")
]
Users: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="TYPE:NAME", help="A user, for operations on its tokens: User:alice; repeatable."),
]
OfCluster: TypeAlias = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Principals: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--principal", metavar="TYPE:NAME", help="Of this user: User:alice, or User:* for all; repeatable."),
]
Hosts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="From this address, or CIDR range; repeatable. By default any."),
]
Operations: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OPERATION", help=f"One of {words_of(OPERATIONS)}; repeatable."),
]
PatternFilter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--pattern",
        metavar="PATTERN",
        help="Which ACLs a name finds: any (of this very name), literal or prefixed of them, or match: all that apply to it.",
    ),
]
PermissionFilter: TypeAlias = Annotated[
    str | None, typer.Option("--permission", metavar="PERMISSION", help="Only those that allow, or that deny.")
]


class Resource(NamedTuple):
    """A resource that options name; the name is None for any of the type."""

    type: int
    name: str | None


@app.command("list", epilog="Example: kohort acls list --topic orders --pattern match")
def list_acls(
    is_json: AsJson = False,
    principal: Principals = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    delegation_token: TokenIds = None,
    user: Users = None,
    cluster: OfCluster = False,
    pattern: PatternFilter = "any",
    operation: Operations = None,
    host: Hosts = None,
    permission: PermissionFilter = None,
) -> None:
    """
    List ACLs.

    Options choose among them: an ACL has to have one of the values of each option that is given.
    """
    resources = _resources(topic, group, transactional_id, delegation_token, user, is_cluster=cluster)
    filters = _filters(resources, pattern, principal, operation, host, permission)
    with open_client() as client:
        rows = _described(client, filters)
    print_rows(_COLUMNS, rows, is_json=is_json)


@app.command(epilog="Example: kohort acls create --principal User:alice --operation read --topic orders- --prefixed")
def create(
    principal: Principals = None,
    is_json: AsJson = False,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    delegation_token: TokenIds = None,
    user: Users = None,
    cluster: OfCluster = False,
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="The names are beginnings of names; otherwise whole names.")
    ] = False,
    operation: Operations = None,
    producer: Annotated[
        bool,
        typer.Option("--producer", help="What a producer needs: write to the topics, and use the transactional ids."),
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs: read the topics, and use the groups.")
    ] = False,
    host: Hosts = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow. What is denied stays denied.")] = False,
) -> None:
    """
    Create ACLs: one for each principal, host, operation and resource.

    An ACL that exists already is not created twice. If one is refused, the others are still created, and the exit code is 2.
    """
    if not principal:
        raise ConfigError("give --principal TYPE:NAME, such as User:alice")
    for each in principal:
        check_principal(each)
        if not each.startswith("User:"):
            echo(f"{each} is no user of a connection: those are of the type User, as User:alice", err=True)
    resources = _resources(topic, group, transactional_id, delegation_token, user, is_cluster=cluster)
    if not resources:
        raise ConfigError(
            "give a resource: --topic, --group, --transactional-id, --cluster, --delegation-token or --user"
        )
    wanted = _permitted(resources, operation or (), is_producer=producer, is_consumer=consumer)
    creations = [
        m.CreateAclsRequestAclCreation(
            resource_type=resource.type,
            resource_name=resource.name or "",
            resource_pattern_type=_pattern_of(resource, is_prefixed=prefixed),
            principal=who,
            host=where,
            operation=what,
            permission_type=Permission.DENY if deny else Permission.ALLOW,
        )
        for who, where, (resource, what) in product(principal, host or (ANY_HOST,), wanted)
    ]
    with open_client() as client:
        results = client.send(ApiKey.CREATE_ACLS, m.CreateAclsRequest(creations=creations)).results
    rows = [_row(one, one) for one in creations]
    _print_changed(
        "Created", [row for row, result in zip(rows, results, strict=True) if not result.error_code], is_json
    )
    raise_all(
        f"{_sentence(row)} cannot be created: {reason(result.error_code, result.error_message)}"
        for row, result in zip(rows, results, strict=True)
        if result.error_code
    )


@app.command(epilog="Example: kohort acls delete --principal User:alice --topic orders --dry-run")
def delete(
    is_json: AsJson = False,
    principal: Principals = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    delegation_token: TokenIds = None,
    user: Users = None,
    cluster: OfCluster = False,
    pattern: PatternFilter = "any",
    operation: Operations = None,
    host: Hosts = None,
    permission: PermissionFilter = None,
    with_all: Annotated[bool, typer.Option("--all", help="All ACLs, when nothing else is given.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which ones would be deleted.")] = False,
) -> None:
    """
    Delete ACLs, without confirmation.

    They are those that `kohort acls list` shows with the same options.
    """
    resources = _resources(topic, group, transactional_id, delegation_token, user, is_cluster=cluster)
    chosen = bool(resources or principal or operation or host or permission)
    if chosen == with_all:
        raise ConfigError("say which ACLs: by --principal, a resource, --operation, --host or --permission; or --all")
    filters = _filters(resources, pattern, principal, operation, host, permission)
    with open_client() as client:
        if dry_run:
            rows = _described(client, filters)
        else:
            results = client.send(ApiKey.DELETE_ACLS, m.DeleteAclsRequest(filters=filters)).filter_results
            raise_all(reason(result.error_code, result.error_message) for result in results if result.error_code)
            found = (one for result in results for one in result.matching_acls)
            rows = _distinct(_row(one, one) for one in found if not one.error_code)
    _print_changed("Would delete" if dry_run else "Deleted", rows, is_json)
    if not rows and not is_json:
        echo("There are no such ACLs.")


def _resources(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    tokens: Sequence[str] | None,
    users: Sequence[str] | None,
    *,
    is_cluster: bool,
) -> list[Resource]:
    named = {
        ResourceType.TOPIC: topics,
        ResourceType.GROUP: groups,
        ResourceType.TRANSACTIONAL_ID: transactional_ids,
        ResourceType.DELEGATION_TOKEN: tokens,
        ResourceType.USER: users,
        ResourceType.CLUSTER: (CLUSTER_NAME,) if is_cluster else (),
    }
    return [Resource(kind, name) for kind, names in named.items() for name in dict.fromkeys(names or ())]


def _filters(
    resources: Sequence[Resource],
    pattern: str,
    principals: Sequence[str] | None,
    operations: Sequence[str] | None,
    hosts: Sequence[str] | None,
    permission: str | None,
) -> list[m.DeleteAclsFilter]:
    """One filter for each combination of the values that are given."""
    pattern_code = code_of(pattern, PATTERNS, "--pattern")
    permission_code = _ANY if permission is None else code_of(permission, PERMISSIONS, "--permission")
    codes = [code_of(each, OPERATIONS, "--operation") for each in operations or ()] or [_ANY]
    for each in principals or ():
        check_principal(each)
    return [
        m.DeleteAclsFilter(
            resource_type_filter=resource.type,
            resource_name_filter=resource.name,
            pattern_type_filter=pattern_code,
            principal_filter=principal,
            host_filter=host,
            operation=operation,
            permission_type=permission_code,
        )
        for resource, principal, host, operation in product(
            resources or (Resource(_ANY, None),), principals or (None,), hosts or (None,), codes
        )
    ]


def _permitted(
    resources: Sequence[Resource], operations: Sequence[str], *, is_producer: bool, is_consumer: bool
) -> list[tuple[Resource, int]]:
    """The operations on each resource. Source: Kafka AclCommand, the options --producer and --consumer."""
    codes = [code_of(each, OPERATIONS, "--operation") for each in operations]
    if not codes and not is_producer and not is_consumer:
        raise ConfigError(f"give --operation ({words_of(OPERATIONS)}), --producer or --consumer")
    needs: dict[int, list[int]] = {}
    if is_producer:
        needs[ResourceType.TOPIC] = [Operation.WRITE, Operation.DESCRIBE, Operation.CREATE]
        needs[ResourceType.TRANSACTIONAL_ID] = [Operation.WRITE, Operation.DESCRIBE]
    if is_consumer:
        needs[ResourceType.TOPIC] = [*needs.get(ResourceType.TOPIC, ()), Operation.READ, Operation.DESCRIBE]
        needs[ResourceType.GROUP] = [Operation.READ]
    wanted = [(resource, operation) for resource in resources for operation in (*codes, *needs.get(resource.type, ()))]
    idle = next((each for each in resources if not codes and each.type not in needs), None)
    if idle is not None:
        kind = name_of(idle.type, ResourceType).lower().replace("_", " ")
        raise ConfigError(f"--producer and --consumer need no ACL for the {kind} {idle.name}; give --operation for it")
    return list(dict.fromkeys(wanted))


def _pattern_of(resource: Resource, *, is_prefixed: bool) -> PatternType:
    """The cluster has one name."""
    return PatternType.PREFIXED if is_prefixed and resource.type != ResourceType.CLUSTER else PatternType.LITERAL


def _described(client: Client, filters: Iterable[m.DeleteAclsFilter]) -> list[dict[str, Any]]:
    rows = []
    for one in filters:
        request = m.DescribeAclsRequest(
            resource_type_filter=one.resource_type_filter,
            resource_name_filter=one.resource_name_filter,
            pattern_type_filter=one.pattern_type_filter,
            principal_filter=one.principal_filter,
            host_filter=one.host_filter,
            operation=one.operation,
            permission_type=one.permission_type,
        )
        response = client.send(ApiKey.DESCRIBE_ACLS, request)
        if response.error_code:
            raise refusal(response.error_code, "ACLs", response.error_message)
        rows += [_row(resource, acl) for resource in response.resources for acl in resource.acls]
    return _distinct(rows)


def _row(resource: Any, acl: Any) -> dict[str, Any]:
    pattern = resource.resource_pattern_type if hasattr(resource, "resource_pattern_type") else resource.pattern_type
    return {
        "principal": acl.principal,
        "permission": name_of(acl.permission_type, Permission),
        "operation": name_of(acl.operation, Operation),
        "resource_type": name_of(resource.resource_type, ResourceType),
        "name": resource.resource_name,
        "pattern": name_of(pattern, PatternType),
        "host": acl.host,
    }


def _distinct(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each ACL once, although several filters have found it, in the order of resources and users."""
    order = ("resource_type", "name", "pattern", "principal", "permission", "operation", "host")
    unique = {tuple(row[field] for field in order): row for row in rows}
    return [unique[key] for key in sorted(unique)]


def _print_changed(verb: str, rows: Sequence[dict[str, Any]], is_json: bool) -> None:
    if is_json:
        print_json(rows)
    elif rows:
        print_table(_COLUMNS, rows, title=f"{verb} {len(rows)} ACL{'s' if len(rows) > 1 else ''}:")


def _sentence(row: dict[str, Any]) -> str:
    return "the ACL {principal} {permission} {operation} {resource_type} {name} ({pattern}) from {host}".format_map(row)
