"""
The commands of `kohort tokens`. Source: Kafka DelegationTokenCommand.

Kafka's APIs name a token by its secret, the HMAC. These commands take its id, which is no secret, and look the HMAC up.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import typer

from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.groups.reset_targets import duration_ms
from kohort.cli.options import AsJson
from kohort.cli.output import echo, print_changes, print_json, print_rows, print_table
from kohort.cli.security.words import check_principal
from kohort.client.cluster import Client
from kohort.client.connection import refusal
from kohort.model.errors import ConfigError
from kohort.pipeline.report.formatting import instant
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

app = ClusterApp(
    "tokens",
    help="Create, list, renew and end delegation tokens: credentials that a user makes for its programs, and that end soon.",
    epilog="""\
Only users who have logged in themselves may: not with a token, and not on a listener without logins. The broker needs
delegation.token.secret.key.

\b
Examples:
  kohort tokens create --renewer User:scheduler --max-life P1D
  kohort tokens renew 1l7V_ZrNS1ODnrBbQdHJtg
  kohort tokens end 1l7V_ZrNS1ODnrBbQdHJtg""",
)

_COLUMNS: Final = ("token_id", "owner", "requester", "renewers", "issued_(utc)", "ends_(utc)", "ends_at_latest_(utc)")
_AT_ONCE: Final = -1
_DEFAULT: Final = -1

TokenId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]
Owners: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--owner", metavar="TYPE:NAME", help="Only those that this user owns or may renew; repeatable."),
]


@app.command(epilog="Example: kohort tokens create --owner User:spark --renewer User:yarn --max-life P7D")
def create(
    is_json: AsJson = False,
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="TYPE:NAME", help="The user whom the token stands for; by default yourself."),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="User:NAME", help="A user who may renew and end it, too; repeatable."),
    ] = None,
    max_life: Annotated[
        str | None,
        typer.Option(
            "--max-life",
            metavar="ISO8601",
            help="Longest life with all renewals: P7D, PT12H. By default the broker's bound.",
        ),
    ] = None,
) -> None:
    """
    Create a token, and print its id and its secret.

    A client logs in with them as with a name and a password: SCRAM, with tokenauth="true" in sasl.jaas.config.
    """
    owner_type, owner_name = (None, None) if owner is None else _principal(owner)
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[
            m.CreateDelegationTokenRequestCreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, renewer or ())
        ],
        max_lifetime_ms=_DEFAULT if max_life is None else duration_ms(max_life),
    )
    with open_client() as client:
        made = client.send(ApiKey.CREATE_DELEGATION_TOKEN, request)
    _raise_refused(made.error_code, "the token cannot be created")
    row = {
        "token_id": made.token_id,
        "owner": f"{made.principal_type}:{made.principal_name}",
        "hmac": b64encode(made.hmac).decode(),
        "issued_ms": made.issue_timestamp_ms,
        "ends_ms": made.expiry_timestamp_ms,
        "ends_at_latest_ms": made.max_timestamp_ms,
    }
    if is_json:
        print_json([row])
        return
    print_table(("token_id", "owner", "ends_(utc)", "ends_at_latest_(utc)"), [_with_times(row)])
    echo(f"\nsecret  {row['hmac']}")


@app.command("list", epilog="Example: kohort tokens list --owner User:spark")
def list_tokens(is_json: AsJson = False, owner: Owners = None) -> None:
    """List the tokens that you may see, without their secrets."""
    with open_client() as client:
        found = _described(client, owner)
    rows = [
        {
            "token_id": token.token_id,
            "owner": f"{token.principal_type}:{token.principal_name}",
            "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
            "issued_ms": token.issue_timestamp,
            "ends_ms": token.expiry_timestamp,
            "ends_at_latest_ms": token.max_timestamp,
        }
        for token in sorted(found, key=lambda token: (token.issue_timestamp, token.token_id))
    ]
    if is_json:
        print_rows((), rows, is_json=True)
    else:
        print_table(_COLUMNS, [_with_times(row) for row in rows])


@app.command(epilog="Example: kohort tokens renew 1l7V_ZrNS1ODnrBbQdHJtg --for PT12H")
def renew(
    token_id: TokenId,
    is_json: AsJson = False,
    period: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="ISO8601", help="From now on: P1D, PT12H. By default as long as the broker allows."
        ),
    ] = None,
) -> None:
    """Put off the end of a token. It cannot be put off beyond its longest life."""
    period_ms = _DEFAULT if period is None else duration_ms(period)
    with open_client() as client:
        request = m.RenewDelegationTokenRequest(hmac=_secret(client, token_id), renew_period_ms=period_ms)
        answer = client.send(ApiKey.RENEW_DELEGATION_TOKEN, request)
    _raise_refused(answer.error_code, f"token {token_id} cannot be renewed")
    _print_end(token_id, answer.expiry_timestamp_ms, "Token {token_id} ends at {ends}.", is_json=is_json)


@app.command(epilog="Example: kohort tokens end 1l7V_ZrNS1ODnrBbQdHJtg --after PT5M")
def end(
    token_id: TokenId,
    is_json: AsJson = False,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ISO8601", help="So long after now: PT5M. By default at once.")
    ] = None,
) -> None:
    """
    End a token: nobody logs in with it any more.

    Clients that are connected with it stay so until the end that the token had when they logged in.
    """
    period_ms = _AT_ONCE if after is None else duration_ms(after)
    with open_client() as client:
        request = m.ExpireDelegationTokenRequest(hmac=_secret(client, token_id), expiry_time_period_ms=period_ms)
        answer = client.send(ApiKey.EXPIRE_DELEGATION_TOKEN, request)
    _raise_refused(answer.error_code, f"token {token_id} cannot be ended")
    sentence = "Token {token_id} has ended." if after is None else "Token {token_id} ends at {ends}."
    _print_end(token_id, answer.expiry_timestamp_ms, sentence, is_json=is_json)


def _described(client: Client, owners: Sequence[str] | None) -> Sequence[Any]:
    asked = None
    if owners is not None:
        asked = [
            m.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        ]
    response = client.send(ApiKey.DESCRIBE_DELEGATION_TOKEN, m.DescribeDelegationTokenRequest(owners=asked))
    _raise_refused(response.error_code, "tokens cannot be listed")
    tokens: Sequence[Any] = response.tokens
    return tokens


def _secret(client: Client, token_id: str) -> bytes:
    """
    Raises:
        ConfigError: there is no such token, or the user may not see it.
    """
    found = next((token.hmac for token in _described(client, None) if token.token_id == token_id), None)
    if found is None:
        raise ConfigError(f"there is no token {token_id!r} that you may see; see: kohort tokens list")
    return bytes(found)


def _principal(text: str) -> tuple[str, str]:
    check_principal(text)
    kind, _, name = text.partition(":")
    return kind, name


def _raise_refused(code: int, what: str) -> None:
    if code:
        raise refusal(code, what)


def _print_end(token_id: str, ends_ms: int, sentence: str, *, is_json: bool) -> None:
    row = {"token_id": token_id, "ends_ms": ends_ms}
    print_changes(sentence, [row if is_json else row | {"ends": f"{instant(ends_ms)} UTC"}], is_json=is_json)


def _with_times(row: dict[str, Any]) -> dict[str, Any]:
    times = ("issued", "ends", "ends_at_latest")
    return row | {f"{name}_(utc)": instant(row[f"{name}_ms"]) for name in times}
