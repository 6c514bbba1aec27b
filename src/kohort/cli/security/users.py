"""The commands of `kohort users`: the SCRAM credentials of the cluster. Source: Kafka ConfigCommand, entity type users."""

import hashlib
import os
import secrets
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.options import AsJson
from kohort.cli.output import print_changes, print_rows, raise_all
from kohort.cli.security.words import code_of, name_of
from kohort.client.connection import reason, refusal
from kohort.model.errors import ConfigError, ErrorCode
from kohort.security.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_HASHES
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

app = ClusterApp(
    "users",
    help="List, set and delete the users that log in with SCRAM: names and passwords that the cluster itself keeps.",
    epilog="""\
A password is asked for, or read from a file or from standard input. The cluster gets two keys made from it, not the password.

\b
Examples:
  kohort users set alice
  kohort users set alice --password-file secret.txt --mechanism scram-sha-512
  kohort users list""",
)

_SALT_BYTES: Final = 24
_VARIABLE: Final = "KOHORT_USER_PASSWORD"


class _Mechanism(IntEnum):
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def label(self) -> str:
        return self.name.replace("_", "-")


_MECHANISMS: Final = {each.label.lower(): int(each) for each in _Mechanism}

Names: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="USER", help="Names of users, without User: before them.")
]
Mechanisms: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", metavar="MECHANISM", help="scram-sha-256 or scram-sha-512; repeatable. By default both."
    ),
]


@app.command("list", epilog="Example: kohort users list --json")
def list_users(is_json: AsJson = False) -> None:
    """List users with their mechanisms and iterations. Users of the options of a broker are not among them."""
    with open_client() as client:
        results = client.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, m.DescribeUserScramCredentialsRequest(users=None))
    if results.error_code:
        raise refusal(results.error_code, "users", results.error_message)
    rows = [
        {"user": found.user, "mechanism": _label(info.mechanism), "iterations": info.iterations}
        for found in sorted(results.results, key=lambda found: found.user)
        for info in sorted(found.credential_infos, key=lambda info: info.mechanism)
    ]
    print_rows(("user", "mechanism", "iterations"), rows, is_json=is_json)


@app.command("set", epilog="Example: kohort users set alice --password-file secret.txt")
def set_user(
    name: Annotated[str, typer.Argument(metavar="USER", help="Name of the user, without User: before it.")],
    is_json: AsJson = False,
    mechanism: Mechanisms = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help=f"File with the password on its first line; - is standard input. Otherwise {_VARIABLE} of the environment, "
            "or a question.",
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="Of the key derivation.")
    ] = ITERATIONS_MIN,
) -> None:
    """Create a user, or give a user another password. Clients that are connected stay so until they log in again."""
    codes = _codes(mechanism)
    password = _password(name, password_file)
    with open_client() as client:
        rows = []
        # A request can change one credential of a user.
        for code in codes:
            request = m.AlterUserScramCredentialsRequest(
                deletions=(), upsertions=[_upsertion(name, code, password, iterations)]
            )
            results = client.send(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request).results
            _raise_refused(results, f"cannot be set for {_label(code)}")
            rows.append({"user": name, "mechanism": _label(code), "iterations": iterations})
    print_changes("User {user} can log in with {mechanism}.", rows, is_json=is_json)


@app.command(epilog="Example: kohort users delete alice bob")
def delete(
    names: Names,
    is_json: AsJson = False,
    mechanism: Mechanisms = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore users that do not exist.")] = False,
) -> None:
    """
    Delete users, or their credentials of one mechanism, without confirmation.

    Clients that are connected stay so until they log in again. If one user is refused, the exit code is 2.
    """
    unique = tuple(dict.fromkeys(names))
    chosen = _codes(mechanism)
    with open_client() as client:
        asked = m.DescribeUserScramCredentialsRequest(
            users=[m.DescribeUserScramCredentialsRequestUserName(name=name) for name in unique]
        )
        described = client.send(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, asked)
        if described.error_code:
            raise refusal(described.error_code, "users", described.error_message)
        ignored = {ErrorCode.RESOURCE_NOT_FOUND} if if_exists else set()
        refused = [each for each in described.results if each.error_code and each.error_code not in ignored]
        rows = []
        for code in chosen:
            deletions = [
                m.AlterUserScramCredentialsRequestScramCredentialDeletion(name=found.user, mechanism=code)
                for found in described.results
                if any(info.mechanism == code for info in found.credential_infos)
            ]
            if not deletions:
                continue
            request = m.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=())
            results = client.send(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request).results
            rows += [{"user": each.user, "mechanism": _label(code)} for each in results if not each.error_code]
            refused += [each for each in results if each.error_code]
    print_changes("User {user} can no longer log in with {mechanism}.", rows, is_json=is_json)
    _raise_refused(refused, "cannot be deleted")


def _codes(mechanisms: Sequence[str] | None) -> list[int]:
    words = mechanisms or list(_MECHANISMS)
    return list(dict.fromkeys(code_of(word, _MECHANISMS, "--mechanism") for word in words))


def _label(code: int) -> str:
    return name_of(code, _Mechanism).replace("_", "-")


def _upsertion(
    name: str, code: int, password: str, iterations: int
) -> m.AlterUserScramCredentialsRequestScramCredentialUpsertion:
    salt = secrets.token_bytes(_SALT_BYTES)
    algorithm = SCRAM_HASHES[_Mechanism(code).label]
    return m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
        name=name,
        mechanism=code,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations),
    )


def _password(name: str, file: Path | None) -> str:
    """
    Raises:
        ConfigError: the file cannot be read, or there is no password.
    """
    if file is not None:
        try:
            text = sys.stdin.readline() if str(file) == "-" else _first_line(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from None
        text = text.removesuffix("\n").removesuffix("\r")
    elif _VARIABLE in os.environ:
        text = os.environ[_VARIABLE]
    elif sys.stdin.isatty():
        text = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise ConfigError(f"there is no password: give --password-file FILE, or set {_VARIABLE}")
    if not text:
        raise ConfigError("the password is empty")
    return text


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return lines.readline()


def _raise_refused(results: Sequence[Any], failed: str) -> None:
    raise_all(
        f"user {each.user} {failed}: {reason(each.error_code, each.error_message)}"
        for each in results
        if each.error_code
    )
