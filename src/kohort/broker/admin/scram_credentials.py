"""
DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), version 0, of the credentials in the catalog.

The salted password of a request is not stored: two keys are, from which a password can be verified. A listener asks for them at
each authentication (`stored_credential`).

Source: KIP-554, RFC 5802; Kafka ScramControlManager, ScramImage.describe, ScramFormatter.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final

from kohort.broker.catalog.catalog import NO_CHANGE, Catalog
from kohort.broker.catalog.changes import DEFAULT_TIMEOUT_MS, Changes, Decided, accepted, verdict
from kohort.broker.catalog.view import SCRAM, CatalogChange, Setting
from kohort.broker.ports import Context
from kohort.machine.gradual import HANDLER_STEP, chunks, gathered
from kohort.machine.shard import Reply
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import SCRAM_NAME_LENGTH_MAX, SCRAM_SALT_BYTES_MAX, SETTINGS_MAX
from kohort.security.credentials import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_HASHES, ScramCredential, keys_of
from kohort.wire import messages as m

_MECHANISMS: Final = dict(enumerate(SCRAM_HASHES, 1))
"""By number in requests."""
_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}
_TEXTS: Final = ("salt", "stored_key", "server_key")
"""The fields of a stored credential that are bytes in base64."""
_TWICE: Final = "A user credential cannot be altered twice in the same request"


class ScramCredentials:
    """Handlers of both APIs."""

    def __init__(self, catalog: Catalog, changes: Changes) -> None:
        self._catalog = catalog
        self._changes = changes

    def describe_user_scram_credentials(
        self,
        request: m.DescribeUserScramCredentialsRequest,
        _context: Context,
        _reply: Reply[m.DescribeUserScramCredentialsResponse],
    ) -> Generator[None, None, m.DescribeUserScramCredentialsResponse]:
        """Describe users that are asked for; all for null or none."""
        by_user: dict[str, list[tuple[int, int]]] = {}
        for number, (name, value) in enumerate(list(self._catalog.settings(SCRAM).items()), 1):
            mechanism, _, user = name.partition(":")
            by_user.setdefault(user, []).append((int(mechanism), value["iterations"]))
            if number % HANDLER_STEP == 0:
                yield
        counts: Counter[str] = Counter()
        for users in chunks(request.users or (), HANDLER_STEP):
            counts.update(user.name for user in users)
            yield
        results = yield from gathered(
            _described(user, by_user.get(user), count) for user, count in (counts or dict.fromkeys(by_user, 1)).items()
        )
        return m.DescribeUserScramCredentialsResponse(error_message="", results=results)

    def alter_user_scram_credentials(
        self,
        request: m.AlterUserScramCredentialsRequest,
        _context: Context,
        reply: Reply[m.AlterUserScramCredentialsResponse],
    ) -> Generator[None, None, m.AlterUserScramCredentialsResponse | None]:
        """Change one credential of each user; some users at a time."""
        changes: dict[str, Setting | CoordinatorError] = {}
        for deletions in chunks(request.deletions, HANDLER_STEP):
            for deletion in deletions:
                name = deletion.name
                changes[name] = _second(changes[name]) if name in changes else self._deleted(deletion)
            yield
        for upsertions in chunks(request.upsertions, HANDLER_STEP):
            for upsertion in upsertions:
                name = upsertion.name
                changes[name] = _second(changes[name]) if name in changes else self._upserted(upsertion)
            yield

        def response(results: list[m.AlterUserScramCredentialsResult]) -> m.AlterUserScramCredentialsResponse:
            return m.AlterUserScramCredentialsResponse(results=results)

        parts = list(chunks(list(changes.items())))
        return (yield from self._changes.make_in_parts(parts, self._change, DEFAULT_TIMEOUT_MS, response, reply))

    def _change(
        self, decided: Decided[str, Setting]
    ) -> tuple[CatalogChange, Callable[[ErrorCode], list[m.AlterUserScramCredentialsResult]]]:
        settings = accepted(decided, Setting)
        known = self._catalog.newest_settings(SCRAM)
        if len(known) + sum(each.value is not None and each.name not in known for each in settings) > SETTINGS_MAX:
            full = CoordinatorError(ErrorCode.POLICY_VIOLATION, f"At most {SETTINGS_MAX} credentials can be stored.")
            return NO_CHANGE, partial(_altered, [(user, full) for user, _ in decided])
        return CatalogChange(settings=settings), partial(_altered, decided)

    def _deleted(
        self, deletion: m.AlterUserScramCredentialsRequestScramCredentialDeletion
    ) -> Setting | CoordinatorError:
        error = _refusal(deletion.name, deletion.mechanism)
        setting = Setting(SCRAM, _name(deletion.name, deletion.mechanism), None)
        if error is None and setting.name not in self._catalog.newest_settings(SCRAM):
            message = "Attempt to delete a user credential that does not exist"
            error = CoordinatorError(ErrorCode.RESOURCE_NOT_FOUND, message)
        return error or setting

    def _upserted(
        self, upsertion: m.AlterUserScramCredentialsRequestScramCredentialUpsertion
    ) -> Setting | CoordinatorError:
        error = _refusal(upsertion.name, upsertion.mechanism)
        if error is not None:
            return error
        for is_refused, message in (
            (upsertion.iterations < ITERATIONS_MIN, "Too few iterations"),
            (upsertion.iterations > ITERATIONS_MAX, "Too many iterations"),
            (len(upsertion.name) > SCRAM_NAME_LENGTH_MAX, "Username is too long"),
            (len(upsertion.salt) > SCRAM_SALT_BYTES_MAX, "Salt is too long"),
            (len(upsertion.salted_password) > SCRAM_SALT_BYTES_MAX, "Salted password is too long"),
            (not upsertion.salted_password, "Salted password must not be empty"),
        ):
            if is_refused:
                return CoordinatorError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
        stored_key, server_key = keys_of(_MECHANISMS[upsertion.mechanism], upsertion.salted_password)
        value = {
            "iterations": upsertion.iterations,
            "salt": b64encode(upsertion.salt).decode(),
            "stored_key": b64encode(stored_key).decode(),
            "server_key": b64encode(server_key).decode(),
        }
        return Setting(SCRAM, _name(upsertion.name, upsertion.mechanism), value)


def stored_credential(catalog: Catalog, user: str, mechanism: str) -> ScramCredential | None:
    """The credential of a user that is durable now."""
    fields = catalog.settings(SCRAM).get(_name(user, _NUMBERS[mechanism]))
    if fields is None:
        return None
    salt, stored_key, server_key = (b64decode(fields[key]) for key in _TEXTS)
    return ScramCredential(salt, stored_key, server_key, fields["iterations"])


def check_credential(name: str, fields: Mapping[str, object]) -> None:
    """
    Check a stored credential.

    Raises:
        ConfigError: a field is missing or invalid. The message has no secret.
    """
    mechanism, _, user = name.partition(":")
    if mechanism not in map(str, _MECHANISMS) or not user:
        raise ConfigError(f"There is no SCRAM mechanism with the number {mechanism!r}")
    iterations = fields.get("iterations")
    if not isinstance(iterations, int) or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"A SCRAM credential cannot have {iterations!r} iterations")
    for key in _TEXTS:
        text = fields.get(key)
        try:
            b64decode(text, validate=True)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ConfigError(f"The field {key} of a SCRAM credential is not in base64") from None


def _name(user: str, mechanism: int) -> str:
    return f"{mechanism}:{user}"


def _refusal(user: str, mechanism: int) -> CoordinatorError | None:
    if not user:
        return CoordinatorError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in _MECHANISMS:
        return CoordinatorError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _second(first: Setting | CoordinatorError) -> CoordinatorError:
    """The answer to a second change of one user: the error of the first one if it has one."""
    return first if isinstance(first, CoordinatorError) else CoordinatorError(ErrorCode.DUPLICATE_RESOURCE, _TWICE)


def _altered(decided: Decided[str, Setting], failure: ErrorCode) -> list[m.AlterUserScramCredentialsResult]:
    results = []
    for user, outcome in decided:
        code, message = verdict(outcome, failure)
        results.append(m.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message))
    return results


def _described(
    user: str, credentials: list[tuple[int, int]] | None, count: int
) -> m.DescribeUserScramCredentialsResult:
    """Describe the mechanisms and iterations of a user that a request names once."""
    if count > 1:
        return m.DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    if credentials is None:
        return m.DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    infos = [
        m.DescribeUserScramCredentialsResponseCredentialInfo(mechanism=mechanism, iterations=iterations)
        for mechanism, iterations in sorted(credentials)
    ]
    return m.DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=infos)
