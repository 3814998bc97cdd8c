"""What the options of the controller process mean for its controllers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import click
import pytest

from fault_proxy import plain_config
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane import bootstrap, controller, inventory
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import EVERYTHING, Cache, Object, Runtime, Selection
from gpu_control_plane.ray import settings as ray
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
    ("options", "believed"),
    [
        ([], {NAMESPACE}),
        (["--nvidia-namespace=infra", "--operand-namespace=drivers"], {"infra", "drivers"}),
    ],
    ids=["the usual", "another, and that of operands"],
)
def test_trusted_namespaces_reach_bootstrap(
    monkeypatch: pytest.MonkeyPatch, options: list[str], believed: set[str]
) -> None:
    _, given = _settings(monkeypatch, options)
    assert given.trusted.more == believed


def test_the_namespace_reaches_every_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _settings(monkeypatch, ["--namespace=gpus"])
    assert (first.namespace, second.trusted.own, second.trusted.more) == ("gpus", "gpus", frozenset({"gpus"}))


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


def test_what_is_said_of_ray_reaches_its_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_PROBES_INJECTION", "false")
    monkeypatch.setenv("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "90")
    options = ["--ray-watch-namespace=research", "--kuberay-namespace=default", "--timing=ray.podRetry=2m"]
    given = _ray_settings(monkeypatch, options)
    assert given.options.watch_namespaces == ("research",)
    assert not given.options.probes
    assert (given.pod_retry, given.job_status_check_timeout) == (timedelta(minutes=2), timedelta(seconds=90))
    assert given.trusted.include("default")
    assert not given.trusted.include("research")
    assert given.alone_in is None


def test_alone_in_a_namespace_kuberay_is_believed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant who writes such a Lease there keeps Ray from nobody else."""
    given = _ray_settings(monkeypatch, ["--ray-watch-namespace=research", "--ray-single-namespace"])
    assert given.alone_in == "research"
    assert given.trusted.include("research")
    with pytest.raises(click.BadParameter, match="it is for one --ray-watch-namespace"):
        _ray_settings(monkeypatch, ["--ray-single-namespace"])


@pytest.mark.parametrize(
    ("options", "watches"), [([], 5), (["--operand-namespace=drivers"], 6)], ids=["one namespace", "operands elsewhere"]
)
def test_pods_are_watched_once_for_each_selection(
    monkeypatch: pytest.MonkeyPatch, options: list[str], watches: int
) -> None:
    runtime = Runtime("test", config=plain_config("https://127.0.0.1:1"), elect=False, status_port=None)
    asked: set[tuple[type[Object], Selection]] = set()
    declare = runtime.cache

    def cache[T: Object](kind: type[T], selection: Selection = EVERYTHING) -> Cache[T]:
        asked.add((kind, selection))
        return declare(kind, selection)

    def process(_name: str, build: Callable[[Runtime], None], **_options: object) -> int:
        build(runtime)
        return 0

    monkeypatch.setattr(runtime, "cache", cache)
    monkeypatch.setattr("gpu_control_plane.kube.main", process)
    assert controller.command(options, standalone_mode=False) == 0
    assert len({each for each in asked if each[0].resource == Pod.resource}) == watches


def _ray_settings(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> ray.Settings:
    """What the operator of Ray is given."""
    given: list[ray.Settings] = []

    def process(_name: str, build: Callable[[Runtime], None], **_options: object) -> int:
        build(cast("Runtime", None))
        return 0

    monkeypatch.setattr("gpu_control_plane.kube.main", process)
    monkeypatch.setattr("gpu_control_plane.kube.replicas.watch_replicas", lambda *_arguments: None)
    monkeypatch.setattr("gpu_control_plane.ray.controller.build", lambda _runtime, settings: given.append(settings))
    others = [f"--without={name}" for name in ("inventory", "bootstrap", "pools", "operator")]
    assert controller.command([*others, *options], standalone_mode=False) == 0
    return given[0]


def _settings(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> tuple[inventory.Settings, bootstrap.Settings]:
    """What inventory and bootstrap are given."""
    given: list[Any] = []

    def process(_name: str, build: Callable[[Runtime], None], **_options: object) -> int:
        build(cast("Runtime", None))
        return 0

    monkeypatch.setattr("gpu_control_plane.kube.main", process)
    monkeypatch.setattr("gpu_control_plane.kube.replicas.watch_replicas", lambda *_arguments: None)
    for name in ("inventory", "bootstrap"):
        built = f"gpu_control_plane.{name}.controller.build"
        monkeypatch.setattr(built, lambda _runtime, settings: given.append(settings))
    others = [f"--without={name}" for name in ("pools", "operator", "ray")]
    assert controller.command([*others, *options], standalone_mode=False) == 0
    first, second = given
    return first, second
