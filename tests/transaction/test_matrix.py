"""
Every API in every state of a transactional id: the tables of Apache Kafka 4.4.0.

Source: KIP-98, KIP-360, KIP-890; TransactionCoordinator, TransactionMetadata; probed with raw frames on a broker.
"""

from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from tests.transaction.bench import T0, T1, TIMEOUT_MS, Bench, transaction

NONE = 0
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR

PID, EPOCH, OLD_PID = 900, 5, 800
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)


def in_state(state: TransactionState | None, bench: Bench | None = None, **fields: Any) -> Bench:
    """A coordinator whose transactional id is in a state; with partition t-0 if a transaction is in progress."""
    bench = bench or Bench()
    if state is not None:
        has_partitions = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
        bench.put(
            transaction(
                **{
                    "state": state,
                    "producer_id": PID,
                    "producer_epoch": EPOCH,
                    "previous_producer_id": PID,
                    "partitions": frozenset({T0}) if has_partitions else frozenset(),
                    "start_timestamp_ms": -1 if state is EMPTY else bench.node.clock.now_ms(),
                }
                | fields
            )
        )
    return bench


# fmt: off
#         id unknown  Empty          Ongoing     PrepareCommit  PrepareAbort  CompleteCommit  CompleteAbort
MATRIX = {
    "init":           (NONE,    NONE,          CONCURRENT, CONCURRENT, CONCURRENT, NONE,          NONE),
    "add known":      (MAPPING, NONE,          NONE,       CONCURRENT, CONCURRENT, NONE,          NONE),
    "add new":        (MAPPING, NONE,          NONE,       CONCURRENT, CONCURRENT, NONE,          NONE),
    "add by a leader": (MAPPING, NONE,          NONE,       CONCURRENT, CONCURRENT, NONE,          NONE),
    "add offsets":    (MAPPING, NONE,          NONE,       CONCURRENT, CONCURRENT, NONE,          NONE),
    "verify known":   (MAPPING, ABORTABLE,     NONE,       CONCURRENT, CONCURRENT, ABORTABLE,     ABORTABLE),
    "verify new":     (MAPPING, ABORTABLE,     ABORTABLE,  CONCURRENT, CONCURRENT, ABORTABLE,     ABORTABLE),
    "commit":         (MAPPING, INVALID_STATE, NONE,       CONCURRENT, CONCURRENT, NONE,          INVALID_STATE),
    "abort":          (MAPPING, INVALID_STATE, NONE,       CONCURRENT, CONCURRENT, INVALID_STATE, NONE),
    "describe":       (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, NONE, NONE, NONE, NONE, NONE, NONE),
}
# fmt: on
CELLS = [
    (api, state, code) for api, codes in MATRIX.items() for state, code in zip((None, *STATES), codes, strict=True)
]


def ask(bench: Bench, api: str, producer_id: int = PID, epoch: int = EPOCH) -> int:
    match api:
        case "init":
            return bench.init()[0]
        case "add known":
            return bench.added(producer_id, epoch, T0)
        case "add new":
            return bench.added(producer_id, epoch, T1)
        case "add by a leader":
            return bench.verify(producer_id, epoch, T0, adds=True)
        case "add offsets":
            return bench.add_offsets(producer_id, epoch)
        case "verify known":
            return bench.verify(producer_id, epoch, T0)
        case "verify new":
            return bench.verify(producer_id, epoch, T1)
        case "commit" | "abort":
            return bench.end(producer_id, epoch, committed=api == "commit")[0]
        case _:
            return bench.describe().error_code


@pytest.mark.parametrize(("api", "state", "code"), CELLS)
def test_every_api_in_every_state(api: str, state: TransactionState | None, code: int) -> None:
    assert ask(in_state(state), api) == code


# fmt: off
AFTER = {
    ("init", EMPTY): (EMPTY, EPOCH + 1),
    ("init", ONGOING): (COMPLETE_ABORT, EPOCH + 1),
    ("init", COMPLETE_COMMIT): (EMPTY, EPOCH + 1),
    ("init", COMPLETE_ABORT): (EMPTY, EPOCH + 1),
    ("add new", EMPTY): (ONGOING, EPOCH),
    ("add new", ONGOING): (ONGOING, EPOCH),
    ("add new", COMPLETE_COMMIT): (ONGOING, EPOCH),
    ("add new", COMPLETE_ABORT): (ONGOING, EPOCH),
    ("add offsets", EMPTY): (ONGOING, EPOCH),
    ("commit", ONGOING): (COMPLETE_COMMIT, EPOCH),
    ("abort", ONGOING): (COMPLETE_ABORT, EPOCH),
    ("verify known", ONGOING): (ONGOING, EPOCH),
    ("commit", COMPLETE_COMMIT): (COMPLETE_COMMIT, EPOCH),
}
# fmt: on


@pytest.mark.parametrize(("api", "state"), AFTER)
def test_the_state_after_a_request(api: str, state: TransactionState) -> None:
    bench = in_state(state)
    ask(bench, api)
    after = bench.transaction()
    assert after is not None
    assert (after.state, after.producer_epoch) == AFTER[api, state]


@pytest.mark.parametrize("api", ["commit", "abort", "add new", "verify known", "describe"])
@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT, PREPARE_COMMIT, PREPARE_ABORT])
def test_a_refused_request_writes_nothing(api: str, state: TransactionState) -> None:
    bench = in_state(state)
    written = bench.logs[0].end_offset
    if ask(bench, api):
        assert bench.logs[0].end_offset == written


# Producer id and epoch. Rows: API, state, producer id, epoch, code.
# fmt: off
CLAIMS = [
    # AddPartitionsToTxn and AddOffsetsToTxn: the state of the markers comes first, then the id, then the epoch.
    ("add new", EMPTY, PID + 1, EPOCH, MAPPING), ("add new", EMPTY, PID, EPOCH + 1, FENCED),
    ("add new", EMPTY, PID, EPOCH - 1, FENCED), ("add new", ONGOING, PID, EPOCH - 1, FENCED),
    ("add new", PREPARE_COMMIT, PID + 1, EPOCH, CONCURRENT), ("add new", PREPARE_ABORT, PID, EPOCH - 1, CONCURRENT),
    ("add offsets", COMPLETE_COMMIT, PID + 1, EPOCH - 1, MAPPING), ("add offsets", COMPLETE_COMMIT, PID, 0, FENCED),
    # Verification: the id and the epoch come before the state.
    ("verify known", ONGOING, PID + 1, EPOCH, MAPPING), ("verify known", PREPARE_COMMIT, PID + 1, EPOCH, MAPPING),
    ("verify known", PREPARE_COMMIT, PID, EPOCH - 1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("verify known", EMPTY, PID, EPOCH + 1, ErrorCode.INVALID_PRODUCER_EPOCH),
    # EndTxn of version 1: the id and the epoch come first.
    ("commit", ONGOING, PID + 1, EPOCH, MAPPING), ("commit", ONGOING, PID, EPOCH - 1, FENCED),
    ("commit", ONGOING, PID, EPOCH + 1, FENCED), ("commit", PREPARE_COMMIT, PID, EPOCH - 1, FENCED),
    ("abort", PREPARE_COMMIT, PID + 1, EPOCH, MAPPING), ("abort", EMPTY, PID, EPOCH + 1, FENCED),
]
# fmt: on


@pytest.mark.parametrize(("api", "state", "producer_id", "epoch", "code"), CLAIMS)
def test_producer_ids_and_epochs(
    api: str, state: TransactionState, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    assert ask(in_state(state), api, producer_id, epoch) == code


# EndTxn of version 2. Columns: abort, retry; abort, present epoch; commit, retry; commit, present epoch. BUMP: NONE, and the
# epoch rises through PrepareAbort and CompleteAbort without partitions.
BUMP = "bump"
# fmt: off
VERSION_2 = {
    EMPTY:           (FENCED,        BUMP,       FENCED,        INVALID_STATE),
    ONGOING:         (FENCED,        NONE,       FENCED,        NONE),
    PREPARE_COMMIT:  (CONCURRENT,    CONCURRENT, CONCURRENT,    CONCURRENT),
    PREPARE_ABORT:   (CONCURRENT,    CONCURRENT, CONCURRENT,    CONCURRENT),
    COMPLETE_COMMIT: (INVALID_STATE, BUMP,       NONE,          INVALID_STATE),
    COMPLETE_ABORT:  (NONE,          BUMP,       INVALID_STATE, INVALID_STATE),
}
# fmt: on
V2_CELLS = [
    (state, committed, is_retry, codes[2 * committed + (not is_retry)])
    for state, codes in VERSION_2.items()
    for committed in (False, True)
    for is_retry in (True, False)
]


@pytest.mark.parametrize(("state", "committed", "is_retry", "expected"), V2_CELLS)
def test_end_txn_of_version_2(
    state: TransactionState, committed: bool, is_retry: bool, expected: ErrorCode | str
) -> None:
    bench = in_state(state, client_version=2)
    written = len(bench.records())
    code, producer_id, epoch = bench.end(PID, EPOCH - is_retry, committed=committed, version=5)
    if expected == BUMP:
        assert (code, producer_id, epoch) == (0, PID, EPOCH + 1)
        assert bench.states()[written:] == [("PrepareAbort", PID, EPOCH + 1), ("CompleteAbort", PID, EPOCH + 1)]
        assert bench.markers.sent == []
        return
    assert code == expected
    if code:
        assert (producer_id, epoch) == (-1, -1)
        assert len(bench.records()) == written
    elif state is ONGOING:
        assert (producer_id, epoch) == (PID, EPOCH + 1)
        (marker,) = bench.markers.sent
        assert (marker[1].producer_epoch, marker[1].committed, marker[1].transaction_version) == (
            EPOCH + 1,
            committed,
            2,
        )
    else:
        assert (producer_id, epoch) == (PID, EPOCH), "a retry gets the present values"


# fmt: off
V2_CLAIMS = [
    # state, producer id, epoch, committed, code
    (PREPARE_COMMIT, PID + 1, EPOCH, True, CONCURRENT), (ONGOING, PID + 1, EPOCH, True, MAPPING),
    (ONGOING, PID, EPOCH + 1, True, FENCED), (ONGOING, PID, EPOCH - 2, False, FENCED),
    (COMPLETE_COMMIT, PID, EPOCH - 2, True, FENCED), (COMPLETE_COMMIT, PID, EPOCH + 1, True, FENCED),
    (COMPLETE_COMMIT, PID + 1, EPOCH - 1, True, MAPPING), (EMPTY, PID + 1, EPOCH, False, MAPPING),
    (EMPTY, PID, EPOCH + 1, False, FENCED),
]
# fmt: on


@pytest.mark.parametrize(("state", "producer_id", "epoch", "committed", "code"), V2_CLAIMS)
def test_producer_ids_and_epochs_of_end_txn_of_version_2(
    state: TransactionState, producer_id: int, epoch: int, committed: bool, code: ErrorCode
) -> None:
    assert in_state(state).end(producer_id, epoch, committed=committed, version=5) == (code, -1, -1)


# InitProducerId with an expected producer id and epoch.
# state, last epoch, epoch, previous producer id; expected id and epoch; code, and the epoch (and id) that follow
# fmt: off
EXPECTED = [
    (EMPTY, -1, 5, PID,      PID, 5,          (0, PID, 6)),
    (EMPTY, 4, 5, PID,       PID, 4,          (0, PID, 5)),       # the answer was lost
    (EMPTY, -1, 5, PID,      PID, 4,          (FENCED, -1, -1)),
    (EMPTY, 4, 5, PID,       PID, 3,          (FENCED, -1, -1)),
    (EMPTY, 4, 5, PID,       PID, 6,          (FENCED, -1, -1)),
    (EMPTY, 4, 5, PID,       PID + 1, 5,      (FENCED, -1, -1)),
    (EMPTY, 32766, 0, OLD_PID, OLD_PID, 32766, (0, PID, 0)),      # a lost answer to the rotation
    (EMPTY, 32766, 0, OLD_PID, OLD_PID, 32765, (FENCED, -1, -1)),
    (EMPTY, 32766, 0, OLD_PID, OLD_PID, 0,    (FENCED, -1, -1)),  # the epoch is of the new id
    (EMPTY, -1, 32765, PID,  PID, 32765,      (0, PID, 32766)),
    (EMPTY, -1, 32766, PID,  PID, 32766,      (0, 1000, 0)),      # a new producer id
    (EMPTY, -1, 32766, PID,  PID, 32765,      (UNKNOWN, -1, -1)),
    (EMPTY, -1, 32766, PID,  -1, -1,          (0, 1000, 0)),
    (COMPLETE_ABORT, -1, 32767, PID, -1, -1,  (0, 1000, 0)),
    (COMPLETE_ABORT, -1, 32767, PID, PID, 32766, (UNKNOWN, -1, -1)),
    (COMPLETE_COMMIT, 4, 5, PID, PID, 4,      (0, PID, 5)),       # after EndTxn of version 2
    (COMPLETE_COMMIT, 4, 5, PID, PID, 5,      (0, PID, 6)),
    (ONGOING, -1, 5, PID,    PID, 3,          (CONCURRENT, -1, -1)),   # the epoch is not looked at
    (ONGOING, -1, 5, PID,    PID + 1, 5,      (FENCED, -1, -1)),
    (ONGOING, -1, 32767, PID, -1, -1,         (CONCURRENT, -1, -1)),
    (PREPARE_COMMIT, -1, 5, PID, PID + 1, 5,  (CONCURRENT, -1, -1)),
]
# fmt: on


@pytest.mark.parametrize(("state", "last", "epoch", "previous", "expected_id", "expected_epoch", "answer"), EXPECTED)
def test_init_producer_id_with_an_expected_epoch(
    state: TransactionState,
    last: int,
    epoch: int,
    previous: int,
    expected_id: int,
    expected_epoch: int,
    answer: tuple[int, int, int],
) -> None:
    bench = in_state(state, producer_epoch=epoch, last_producer_epoch=last, previous_producer_id=previous)
    assert bench.init("tx", expected_id, expected_epoch) == answer


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_old_versions_of_init_producer_id_do_not_know_fenced_producers(version: int, code: ErrorCode) -> None:
    assert in_state(EMPTY).init("tx", PID, EPOCH - 1, version=version)[0] == code


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (3, 90)])
def test_old_versions_of_the_other_apis_do_not_know_fenced_producers(version: int, code: int) -> None:
    assert in_state(ONGOING).added(PID, EPOCH - 1, T1, version=version) == code
    assert in_state(ONGOING).add_offsets(PID, EPOCH - 1, version=version) == code
    assert in_state(ONGOING).end(PID, EPOCH - 1, version=version)[0] == code


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [(0, 50), (-1, 50), (1, 0), (900_000, 0), (900_001, 50)],
)
def test_the_timeout_has_limits(timeout_ms: int, code: int) -> None:
    assert Bench().init(timeout_ms=timeout_ms)[0] == code
    assert TIMEOUT_MS < 900_000
