"""
Completion in the shell: names of topics, groups and transactional ids from a running broker, and the options of `kohort serve`.

The broker is the one that --bootstrap or KOHORT_BOOTSTRAP names. If it does not answer in a second, nothing is completed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from kohort.client.addresses import BOOTSTRAP
from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT, Security, read_properties
from kohort.model.errors import KohortError

TIMEOUT_S = 1.0


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Complete names of topics; internal ones only if they are begun."""
    from kohort.cli.topics.queries import topics

    def names(client: Client) -> Iterable[str]:
        return (topic.name for topic in topics(client) if not topic.is_internal or incomplete)

    return _complete(context, incomplete, names)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Complete group ids."""
    from kohort.cli.groups.queries import group_ids

    return _complete(context, incomplete, group_ids)


def complete_transactional_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Complete transactional ids."""
    from kohort.cli.transactions.queries import Filters, list_transactions

    def names(client: Client) -> Iterable[str]:
        return (each.transactional_id for each in list_transactions(client, Filters()))

    return _complete(context, incomplete, names)


def _complete(context: typer.Context, incomplete: str, names: Callable[[Client], Iterable[str]]) -> list[str]:
    try:
        with _client(context.params) as client:
            return sorted({name for name in names(client) if name.startswith(incomplete)})
    except (KohortError, OSError):
        return []


def _client(params: dict[str, Any]) -> Client:
    path = params.get("command_config")
    security = Security.parse(read_properties(Path(path))) if path else PLAINTEXT
    return Client(str(params.get("bootstrap") or BOOTSTRAP), TIMEOUT_S, security)


class ServeCommand(TyperCommand):
    """`kohort serve`, whose options are parsed elsewhere."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:  # noqa: ARG002 -- click's signature
        from click.shell_completion import CompletionItem

        from kohort.cli.serve import parser

        return [
            CompletionItem(option, help=action.help)
            for action in parser()._actions
            for option in action.option_strings
            if option.startswith(incomplete)
        ]
