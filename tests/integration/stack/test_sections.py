"""What a policy says is carried out and nothing else: sections on and off, fields nobody knows, other policies."""

import pytest

from gpu_control_plane.api.nvidia.names import DEPLOY, NodeLabel, PodLabel, StackCondition, StackEvent, StackReason
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube.errors import Invalid
from gpu_control_plane.operator.stack.live import EVERYWHERE, LiveServiceAccount
from gpu_control_plane.operator.stack.namespace import LABELS
from gpu_control_plane.operator.stack.states import STATES
from gpu_control_plane.operator.views import REVISION_HASH
from integration.stack.operator_env import NAMESPACE, Namespace, Theatre, gpu_node
from integration.stack.scenarios import SIX_EIGHT, stock
from unit.operator.stack.daemonset_names import DRIVER, EXPORTER
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_EXPORTER = "state-dcgm-exporter"
_ALWAYS_ON = {"pre-requisites", "state-operator-metrics", "state-operator-validation"}
_ALWAYS_OFF = ("state-kata-manager",)
_KATA_ONLY = ("state-kata-device-plugin", "state-cc-manager")
_SWITCHES = (
    *("driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager", "sandboxWorkloads"),
    *("vfioManager", "vgpuDeviceManager", "sandboxDevicePlugin", "ccManager", "kataSandboxDevicePlugin"),
)
_ON = {"enabled": True}
_ENFORCE = "pod-security.kubernetes.io/enforce"
_READY = "gpu_operator_state_ready"


async def test_switching_a_section_off_and_on_touches_nothing_else(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("switch-0"))
    await theatre.policy(stock())
    await theatre.state("ready")
    await theatre.at_rest()
    before = await _objects(theatre)
    its = {name for name, (state, _) in before.items() if state == _EXPORTER}
    assert {f"{kind}/{EXPORTER}" for kind in ("DaemonSet", "Service", "ServiceAccount", "Role")} <= its

    await theatre.patch_policy({"dcgmExporter": {"enabled": False}})
    policy = await theatre.state("ready")
    assert {state.name: state.state for state in policy.status.states}[_EXPORTER] == "disabled"
    assert await _objects(theatre) == {name: held for name, held in before.items() if name not in its}

    await theatre.patch_policy({"dcgmExporter": {"enabled": True}})
    await theatre.state("ready")
    after = await _objects(theatre)
    assert after.keys() == before.keys()
    assert {name: held for name, held in after.items() if name not in its}.items() <= before.items()
    assert not await theatre.events(StackEvent.DRIFT_REPAIRED)


async def test_a_change_of_one_operand_replaces_its_pods_and_no_others(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("one-0"), gpu_node("one-1"))
    await theatre.policy(stock())
    await theatre.state("ready")
    await theatre.at_rest()
    before, pods = await _objects(theatre), await _pods(theatre)
    await theatre.patch_policy({"dcgmExporter": {"env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "5000"}]}})
    await theatre.state("ready")
    await theatre.at_rest()
    after = await _objects(theatre)
    assert {name for name, held in before.items() if after[name] != held} == {f"DaemonSet/{EXPORTER}"}
    others = {uid: name for uid, name in pods.items() if name != EXPORTER}
    assert len(others) < len(pods)
    assert others.items() <= (await _pods(theatre)).items()
    assert not {uid for uid, name in pods.items() if name == EXPORTER} & (await _pods(theatre)).keys()


async def test_of_what_is_switched_off_nothing_is_left(theatre: Theatre) -> None:
    passthrough = gpu_node("off-1", labels={"nvidia.com/gpu.workload.config": "vm-passthrough"})
    await theatre.nodes(gpu_node("off-0"), passthrough)
    vgpu = {"repository": "registry.example", "image": "vgpu-manager", "version": "580.1"}
    extra = ("dcgm", "nodeStatusExporter", "vgpuManager")
    await theatre.policy(
        stock(
            **{name: {"enabled": True, **(vgpu if name == "vgpuManager" else {})} for name in extra},
            sandboxWorkloads=_ON,
        )
    )
    await theatre.state("ready")
    assert {state for state, _ in (await _objects(theatre)).values()} == {
        state.name for state in STATES if state.name not in (*_ALWAYS_OFF, *_KATA_ONLY)
    }

    await theatre.patch_policy({name: {"enabled": False} for name in (*_SWITCHES, *extra)})
    await theatre.state("ready")
    assert {state for state, _ in (await _objects(theatre)).values()} == _ALWAYS_ON
    assert set(await theatre.daemonsets()) == {"nvidia-operator-validator"}


async def test_a_driver_that_is_to_come_precompiled_takes_the_place_of_the_one_before(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("pre-0"))
    await theatre.policy(stock())
    await theatre.state("ready")
    (before,) = await _hashes(theatre, "pre-0")
    await theatre.patch_policy({"driver": {"usePrecompiled": True, "version": "595"}})
    await theatre.state("ready")
    drivers = [name for name in await theatre.daemonsets() if name.startswith(DRIVER)]
    assert drivers == [f"{DRIVER}-{SIX_EIGHT}-ubuntu24.04"]
    pods = [pod for pod in await theatre.pods() if pod.controller and pod.controller.name == drivers[0]]
    assert [pod.spec.node_name for pod in pods] == ["pre-0"]
    (now,) = await _hashes(theatre, "pre-0")
    assert now != before


async def test_unknown_fields_are_kept_and_named(theatre: Theatre) -> None:
    await theatre.policy({**stock(driver={"warpDrive": {"factor": 9}}), "holodeck": True})
    held = await theatre.condition(StackCondition.UNKNOWN_FIELDS, StackReason.PRESENT)
    assert "driver.warpDrive" in held.message
    assert "holodeck" in held.message
    await theatre.told(StackEvent.UNKNOWN_FIELDS, "driver.warpDrive", "holodeck")
    policy = await theatre.state("ready")
    assert b"warpDrive" in bytes(policy.spec)
    await theatre.patch_policy({"driver": {"warpDrive": None}, "holodeck": None})
    policy = await theatre.state("ready")
    assert StackCondition.UNKNOWN_FIELDS not in {held.type for held in policy.status.conditions}


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"cdi": {"enabled": False, "nriPluginEnabled": True}}, "cdi.enabled"),
        ({"cdi": {"enabled": True, "nriPluginEnabled": True}, "toolkit": {"enabled": False}}, "toolkit.enabled"),
    ],
)
async def test_a_policy_that_contradicts_itself_is_refused(
    theatre: Theatre, sections: dict[str, dict[str, bool]], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        await theatre.policy(stock(**sections))


async def test_a_second_policy_waits_for_the_first_to_go(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("two-0"))
    await theatre.policy(stock(), "first")
    await theatre.state("ready", "first")
    await theatre.policy(stock(gfd={"enabled": False}), "second")
    policy = await theatre.state("ignored", "second")
    held = {held.type: (held.status, held.reason, held.message) for held in policy.status.conditions}
    assert held["Ready"][0] == "False"
    assert held["Error"][:2] == ("True", "Ignored")
    assert "first" in held["Error"][2]
    await theatre.told(StackEvent.IGNORED, "first", name="second")
    assert "gpu-feature-discovery" in await theatre.daemonsets()

    await theatre.client.delete(StoredClusterPolicy, "first")
    policy = await theatre.state("ready", "second")
    await until_async(lambda: _without(theatre, "gpu-feature-discovery"), within=60, saying="it is still there")

    async def all_seconds() -> bool:
        """What the second does not ask for goes with the first, when the collector comes by."""
        accounts = await theatre.held(LiveServiceAccount)
        return {owner.uid for held in accounts.values() for owner in held.metadata.owner_references} == {
            policy.metadata.uid
        }

    await until_async(all_seconds, within=150, saying="accounts of the first stay behind")


async def test_the_namespace_is_marked_for_as_long_as_that_is_asked_for(theatre: Theatre) -> None:
    own = dict.fromkeys(LABELS) | {_ENFORCE: "baseline"}
    await theatre.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": own}})
    before = (await theatre.client.get(Namespace, NAMESPACE)).metadata
    await theatre.policy(stock(psa={"enabled": True}))
    await theatre.state("ready")
    assert LABELS.items() <= (await _labels(theatre)).items()

    await theatre.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: "restricted"}}})
    await theatre.told(StackEvent.DRIFT_REPAIRED, f"Namespace/{NAMESPACE}")
    assert LABELS.items() <= (await _labels(theatre)).items()

    await theatre.patch_policy({"psa": {"enabled": False}})
    await theatre.state("ready")
    after = (await theatre.client.get(Namespace, NAMESPACE)).metadata
    assert (after.labels, after.annotations) == (before.labels, before.annotations)
    await theatre.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: None}}})


async def test_a_namespace_that_forbids_the_pods_is_told_of_and_opened_if_that_is_asked_for(theatre: Theatre) -> None:
    await theatre.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: "restricted"}}})
    await theatre.nodes(gpu_node("shut-0"))
    await theatre.policy(stock())

    async def told() -> bool:
        states = (await theatre.seen_policy()).status.states
        return [(held.node, held.reason) for state in states for held in state.nodes][:1] == [("shut-0", "PodMissing")]

    await until_async(told, within=60, saying="nobody says that pods are refused")
    assert not await theatre.pods()
    await theatre.patch_policy({"psa": {"enabled": True}})
    await theatre.state("ready")
    await theatre.patch_policy({"psa": {"enabled": False}})
    await theatre.state("ready")
    assert (await _labels(theatre))[_ENFORCE] == "restricted"
    await theatre.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: None}}})


async def test_deleting_the_policy_leaves_nothing_behind(theatre: Theatre) -> None:
    before = await _labels(theatre)
    await theatre.nodes(gpu_node("gone-0"))
    await theatre.policy(stock(psa={"enabled": True}))
    await theatre.state("ready")
    assert LABELS.items() <= (await _labels(theatre)).items()
    assert _number(theatre, "gpu_operator_reconciliation_status") == _number(theatre, _READY, state=_EXPORTER) == 1

    await theatre.client.delete(StoredClusterPolicy, "cluster-policy")
    await until_async(theatre.empty, within=150, saying="operands stay behind")
    await until_async(lambda: _clean(theatre, "gone-0"), within=60, saying="labels stay behind")

    async def unmarked() -> bool:
        return await _labels(theatre) == before

    await until_async(unmarked, within=60, saying="the namespace stays marked")
    assert _number(theatre, "gpu_operator_reconciliation_status") == 0
    assert _number(theatre, _READY, state=_EXPORTER) is None


async def _objects(theatre: Theatre) -> dict[str, tuple[str, str]]:
    """Every object of the stack with the state it belongs to and its version, which a DaemonSet changes by itself."""
    found: dict[str, tuple[str, str]] = {}
    for kind in EVERYWHERE:
        for name, held in (await theatre.held(kind)).items():
            meta = held.metadata
            version = f"{meta.uid}/{meta.generation or meta.resource_version}"
            found[f"{kind.resource.kind}/{name}"] = meta.labels[PodLabel.OPERAND], version
    return found


async def _pods(theatre: Theatre) -> dict[str, str]:
    """The DaemonSet of each pod, by the pod's UID."""
    return {pod.metadata.uid: pod.controller.name for pod in await theatre.pods() if pod.controller}


async def _hashes(theatre: Theatre, node: str) -> list[str]:
    """The template of each driver pod on a node."""
    drivers = [pod for pod in await theatre.pods() if pod.controller and pod.controller.name.startswith(DRIVER)]
    return [pod.metadata.labels[REVISION_HASH] for pod in drivers if pod.spec.node_name == node]


async def _labels(theatre: Theatre) -> dict[str, str]:
    return (await theatre.client.get(Namespace, NAMESPACE)).metadata.labels


def _number(theatre: Theatre, name: str, **labels: str) -> float | None:
    assert theatre.runtime is not None
    return theatre.runtime.metrics.registry.get_sample_value(name, labels)


async def _without(theatre: Theatre, name: str) -> bool:
    return name not in await theatre.daemonsets()


async def _clean(theatre: Theatre, name: str) -> bool:
    labels = (await theatre.node(name)).metadata.labels
    return not any(label.startswith((DEPLOY, "gpu.deckhouse.io/")) for label in labels) and (
        NodeLabel.PRESENT not in labels
    )
