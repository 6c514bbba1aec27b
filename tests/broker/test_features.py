"""Levels of features: the operator's, those of UpdateFeatures, and what a restart finds."""

import pytest

from kohort.broker.catalog.view import CatalogChange, Setting
from kohort.broker.features import FEATURES, SHARE_VERSION, TRANSACTION_VERSION, Features
from kohort.model.errors import ConfigError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import RELEASES, ApiKey
from tests.broker.harness import Harness


def update(harness: Harness, name: str, level: int, upgrade_type: int = 1) -> m.UpdateFeaturesResponse:
    wanted = m.UpdateFeaturesRequestFeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return harness.ask(ApiKey.UPDATE_FEATURES, m.UpdateFeaturesRequest(timeout_ms=1_000, feature_updates=[wanted]))  # type: ignore[no-any-return]


def test_a_change_that_is_durable_after_its_deadline_is_not_answered_again() -> None:
    harness = Harness()
    harness.hold()
    wanted = m.UpdateFeaturesRequestFeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    answers = harness.begin(ApiKey.UPDATE_FEATURES, m.UpdateFeaturesRequest(feature_updates=[wanted]))
    harness.node.advance(30_000)
    assert [answer.error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]
    harness.let_go()
    assert len(answers) == 1
    assert harness.broker.features.level("transaction.version") == 1, "it happened nonetheless"


def shown(harness: Harness) -> tuple[dict[str, int], int]:
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = harness.ask(ApiKey.API_VERSIONS, request)
    return {each.name: each.max_version_level for each in answer.finalized_features}, answer.finalized_features_epoch


def test_a_level_is_shown_with_a_higher_epoch_and_survives_a_restart() -> None:
    harness = Harness(release="4.2.1")
    levels, epoch = shown(harness)
    assert update(harness, "metadata.version", 25, 2).error_code == ErrorCode.NONE
    assert update(harness, "eligible.leader.replicas.version", 0, 3).error_code == ErrorCode.NONE
    changed, later = shown(harness)
    assert later > epoch
    assert changed == {name: level for name, level in levels.items() if "replicas" not in name} | {
        "metadata.version": 25
    }
    assert "eligible.leader.replicas.version" not in changed
    again = Harness(store=harness.store, node=harness.node, release="4.2.1")
    assert shown(again)[0] == changed
    assert update(again, "metadata.version", 24).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(again, "metadata.version", 29).error_code == ErrorCode.NONE


def test_the_operator_decides_at_a_start() -> None:
    harness = Harness(features=Features({TRANSACTION_VERSION: 1}))
    harness.node.settle()
    assert harness.broker.features.level(TRANSACTION_VERSION) == 1
    again = Harness(store=harness.store, node=harness.node)
    assert again.broker.features.level(TRANSACTION_VERSION) == 1
    upgraded = Harness(store=harness.store, node=harness.node, features=Features({TRANSACTION_VERSION: 2}))
    assert upgraded.broker.features.level(TRANSACTION_VERSION) == 2
    harness.node.settle()
    assert upgraded.broker.features.level(TRANSACTION_VERSION) == 2
    assert Harness(store=harness.store, node=harness.node).broker.features.level(TRANSACTION_VERSION) == 2


def test_the_level_of_transactions_is_effective_at_once() -> None:
    harness = Harness()
    assert update(harness, TRANSACTION_VERSION, 1, 2).error_code == ErrorCode.NONE
    assert harness.broker.features.level(TRANSACTION_VERSION) == 1


def test_levels_of_a_newer_version_end_the_start() -> None:
    harness = Harness()
    setting = Setting("feature", TRANSACTION_VERSION, {"level": 9})
    harness.broker.catalog.change(CatalogChange(settings=(setting,)), lambda _code: None)
    harness.node.settle()
    with pytest.raises(ConfigError, match="newer version of Kohort"):
        Harness(store=harness.store, node=harness.node)


NEWEST = {"4.2.1": 29, "4.4.0": 33}


@pytest.mark.parametrize("release", RELEASES)
def test_the_levels_of_metadata_are_those_of_the_release(release: str) -> None:
    newest = NEWEST[release]
    harness = Harness(release=release)
    assert shown(harness)[0]["metadata.version"] == newest
    refused = update(harness, "metadata.version", newest + 1)
    assert refused.error_message is not None
    assert refused.error_message.endswith(f"Local controller 1 only supports versions 7-{newest}")
    lower = update(harness, "metadata.version", 28, 2)
    assert lower.error_code == (ErrorCode.NONE if release == "4.2.1" else ErrorCode.INVALID_UPDATE_VERSION)
    if release != "4.2.1":
        assert lower.error_message is not None
        assert "Unsupported metadata.version downgrade from 33 to 28. Refusing to perform" in lower.error_message
    with pytest.raises(ConfigError, match=f"7 to {newest}, not {newest + 1}"):
        Features({"metadata.version": newest + 1}, release=release)


def test_a_level_that_only_a_later_release_has_ends_the_start_and_names_the_release() -> None:
    harness = Harness(release="4.4.0", features=Features({"metadata.version": 30}, release="4.4.0"))
    harness.node.settle()
    with pytest.raises(ConfigError, match=r"levels 7 to 29, not 30\. Start with --kafka 4\.4$"):
        Harness(store=harness.store, node=harness.node, release="4.2.1")
    again = Harness(store=harness.store, node=harness.node, release="4.4.0")
    assert shown(again)[0]["metadata.version"] == 30


@pytest.mark.parametrize(
    "levels",
    [{"nothing": 1}, {"streams.version": 1}, {"share.version": 3}, {"transaction.version": 3}, {"metadata.version": 6}],
)
def test_unknown_levels_are_refused(levels: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Features(levels)


def test_absent_features_may_be_turned_off() -> None:
    assert Features({"streams.version": 0}).level(TRANSACTION_VERSION) == 2
    assert "streams.version" not in {feature.name for feature in FEATURES}


@pytest.mark.parametrize(("release", "newest"), [("4.2.1", 1), ("4.4.0", 2)])
def test_share_groups_have_the_level_of_the_release_until_it_is_changed(release: str, newest: int) -> None:
    assert Features(release=release).level(SHARE_VERSION) == newest
    harness = Harness(release=release, features=Features({SHARE_VERSION: 0}, release=release))
    harness.host_shares()
    assert SHARE_VERSION not in shown(harness)[0]
    assert update(harness, SHARE_VERSION, newest + 1).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(harness, SHARE_VERSION, newest).error_code == ErrorCode.NONE
    assert shown(harness)[0][SHARE_VERSION] == newest
    assert harness.broker.features.level(SHARE_VERSION) == newest
