"""The comparison of authorizers: equal brokers are equal, a difference is found, and Kohort decides as Apache Kafka does."""

from collections.abc import Sequence
from random import Random

import pytest

from kohort.security.acls.acl import Acl, Permission
from kohort_lab.authorization.__main__ import compare, main
from kohort_lab.authorization.brokers import AskedKohort
from kohort_lab.authorization.questions import questions
from kohort_lab.authorization.rules import random_acls
from tests.conftest import NIGHTLY


class Forgetful(AskedKohort):
    """A broker that knows no DENY."""

    def replace_acls(self, acls: Sequence[Acl]) -> None:
        super().replace_acls([acl for acl in acls if acl.permission == Permission.ALLOW])


def test_equal_brokers_are_equal(rng: Random) -> None:
    first, second = AskedKohort(), AskedKohort()
    for broker in (first, second):
        broker.prepare()
    counts, differences = compare(first, second, rng, 1)
    assert counts["sets of ACLs"] == 1
    assert counts["decisions"] == 6 * sum(question.decisions for question in questions())
    assert not differences


def test_a_broker_that_knows_no_deny_is_found() -> None:
    first, second = AskedKohort(), Forgetful()
    for broker in (first, second):
        broker.prepare()
    seed = next(
        seed for seed in range(100) if sum(acl.permission == Permission.DENY for acl in random_acls(Random(seed))) > 6
    )
    _, differences = compare(first, second, Random(seed), 1)
    assert differences
    assert "permissionType=DENY" in differences[0]


@NIGHTLY
@pytest.mark.maven
def test_kohort_decides_as_apache_kafka_does(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--decisions", "20000", "--seed", str(seed)]) == 0, capsys.readouterr().out
