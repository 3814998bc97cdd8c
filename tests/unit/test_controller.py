"""What the options of the controller process mean for its controllers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import click
import pytest

from gpu_control_plane import bootstrap, controller, inventory
from gpu_control_plane.kube import Runtime
from gpu_control_plane.rules.managed_nodes import ManagedNodes


@pytest.mark.parametrize(
    ("options", "believed"),
    [([], set()), (["--nfd-namespace=hardware", "--nfd-namespace=nfd"], {"hardware", "nfd"})],
    ids=["the usual", "two more"],
)
def test_namespaces_of_node_feature_discovery_reach_inventory(
    monkeypatch: pytest.MonkeyPatch, options: list[str], believed: set[str]
) -> None:
    given, _ = _settings(monkeypatch, options)
    assert given.nfd_namespaces == believed


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ([], ManagedNodes()),
        (["--managed-label=example.com/gpu"], ManagedNodes(label="example.com/gpu")),
        (["--not-managed-by-default"], ManagedNodes(by_default=False)),
    ],
    ids=["the usual", "another label", "one by one"],
)
def test_which_nodes_are_managed_reaches_all_who_ask(
    monkeypatch: pytest.MonkeyPatch, options: list[str], rule: ManagedNodes
) -> None:
    assert {settings.managed for settings in _settings(monkeypatch, options)} == {rule}


def test_waiting_times_reach_their_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--timing=inventory.nodeGracePeriod=5m", "--timing=bootstrap.lossAfter=90s"]
    first, second = _settings(monkeypatch, options)
    assert (first.node_grace_period, second.loss_after) == (timedelta(minutes=5), timedelta(seconds=90))
    assert second.return_after == bootstrap.Settings().return_after


def test_a_waiting_time_that_does_not_exist_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(click.BadParameter, match="there is no waiting time patience: there are busDisagreementTimeout"):
        _settings(monkeypatch, ["--timing=inventory.patience=5m"])


def _settings(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> tuple[inventory.Settings, bootstrap.Settings]:
    """What inventory and bootstrap are given."""
    given: list[Any] = []

    def process(_name: str, build: Callable[[Runtime], None], **_options: object) -> int:
        build(cast("Runtime", None))
        return 0

    monkeypatch.setattr("gpu_control_plane.kube.main", process)
    for name in ("inventory", "bootstrap"):
        built = f"gpu_control_plane.{name}.controller.build"
        monkeypatch.setattr(built, lambda _runtime, settings: given.append(settings))
    others = [f"--without={name}" for name in ("pools", "operator")]
    assert controller.command([*others, *options], standalone_mode=False) == 0
    first, second = given
    return first, second
