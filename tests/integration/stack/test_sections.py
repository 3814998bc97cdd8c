"""What a policy says is carried out and nothing else: sections on and off, unknown fields, other policies."""

import pytest

from gpu_control_plane.api.nvidia.names import DEPLOY, NodeLabel, PodLabel, StackCondition, StackEvent, StackReason
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube.errors import Invalid
from gpu_control_plane.operator.stack.live import CORE_KINDS, LiveServiceAccount
from gpu_control_plane.operator.stack.namespace import LABELS
from gpu_control_plane.operator.stack.operands import STATES
from gpu_control_plane.operator.views import REVISION_HASH
from integration.stack.operator_env import NAMESPACE, Namespace, OperatorEnv, gpu_node
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


async def test_switching_a_section_off_and_on_changes_nothing_else(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("switch-0"))
    await env.policy(stock())
    await env.state("ready")
    await env.at_rest()
    before = await _objects(env)
    its = {name for name, (state, _) in before.items() if state == _EXPORTER}
    assert {f"{kind}/{EXPORTER}" for kind in ("DaemonSet", "Service", "ServiceAccount", "Role")} <= its

    await env.patch_policy({"dcgmExporter": {"enabled": False}})
    policy = await env.state("ready")
    assert {state.name: state.state for state in policy.status.states}[_EXPORTER] == "disabled"
    assert await _objects(env) == {name: held for name, held in before.items() if name not in its}

    await env.patch_policy({"dcgmExporter": {"enabled": True}})
    await env.state("ready")
    after = await _objects(env)
    assert after.keys() == before.keys()
    assert {name: held for name, held in after.items() if name not in its}.items() <= before.items()
    assert not await env.events(StackEvent.DRIFT_REPAIRED)


async def test_a_change_of_one_operand_replaces_its_pods_and_no_others(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("one-0"), gpu_node("one-1"))
    await env.policy(stock())
    await env.state("ready")
    await env.at_rest()
    before, pods = await _objects(env), await _pods(env)
    await env.patch_policy({"dcgmExporter": {"env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "5000"}]}})
    await env.state("ready")
    await env.at_rest()
    after = await _objects(env)
    assert {name for name, held in before.items() if after[name] != held} == {f"DaemonSet/{EXPORTER}"}
    others = {uid: name for uid, name in pods.items() if name != EXPORTER}
    assert len(others) < len(pods)
    assert others.items() <= (await _pods(env)).items()
    assert not {uid for uid, name in pods.items() if name == EXPORTER} & (await _pods(env)).keys()


async def test_nothing_is_left_of_a_state_that_is_switched_off(env: OperatorEnv) -> None:
    passthrough = gpu_node("off-1", labels={"nvidia.com/gpu.workload.config": "vm-passthrough"})
    await env.nodes(gpu_node("off-0"), passthrough)
    vgpu = {"repository": "registry.example", "image": "vgpu-manager", "version": "580.1"}
    extra = ("dcgm", "nodeStatusExporter", "vgpuManager")
    await env.policy(
        stock(
            **{name: {"enabled": True, **(vgpu if name == "vgpuManager" else {})} for name in extra},
            sandboxWorkloads=_ON,
        )
    )
    await env.state("ready")
    assert {state for state, _ in (await _objects(env)).values()} == {
        state.name for state in STATES if state.name not in (*_ALWAYS_OFF, *_KATA_ONLY)
    }

    await env.patch_policy({name: {"enabled": False} for name in (*_SWITCHES, *extra)})
    await env.state("ready")
    assert {state for state, _ in (await _objects(env)).values()} == _ALWAYS_ON
    assert set(await env.daemonsets()) == {"nvidia-operator-validator"}


async def test_a_precompiled_driver_replaces_the_built_one(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("pre-0"))
    await env.policy(stock())
    await env.state("ready")
    (before,) = await _hashes(env, "pre-0")
    await env.patch_policy({"driver": {"usePrecompiled": True, "version": "595"}})
    await env.state("ready")
    drivers = [name for name in await env.daemonsets() if name.startswith(DRIVER)]
    assert drivers == [f"{DRIVER}-{SIX_EIGHT}-ubuntu24.04"]
    pods = [pod for pod in await env.pods() if pod.controller and pod.controller.name == drivers[0]]
    assert [pod.spec.node_name for pod in pods] == ["pre-0"]
    (now,) = await _hashes(env, "pre-0")
    assert now != before


async def test_unknown_fields_are_kept_and_named(env: OperatorEnv) -> None:
    await env.policy({**stock(driver={"warpDrive": {"factor": 9}}), "holodeck": True})
    held = await env.condition(StackCondition.UNKNOWN_FIELDS, StackReason.PRESENT)
    assert "driver.warpDrive" in held.message
    assert "holodeck" in held.message
    await env.event(StackEvent.UNKNOWN_FIELDS, "driver.warpDrive", "holodeck")
    policy = await env.state("ready")
    assert b"warpDrive" in bytes(policy.spec)
    await env.patch_policy({"driver": {"warpDrive": None}, "holodeck": None})
    policy = await env.state("ready")
    assert StackCondition.UNKNOWN_FIELDS not in {held.type for held in policy.status.conditions}


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"cdi": {"enabled": False, "nriPluginEnabled": True}}, "cdi.enabled"),
        ({"cdi": {"enabled": True, "nriPluginEnabled": True}, "toolkit": {"enabled": False}}, "toolkit.enabled"),
    ],
)
async def test_a_policy_that_contradicts_itself_is_refused(
    env: OperatorEnv, sections: dict[str, dict[str, bool]], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        await env.policy(stock(**sections))


async def test_a_second_policy_is_active_once_the_first_is_deleted(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("two-0"))
    await env.policy(stock(), "first")
    await env.state("ready", "first")
    await env.policy(stock(gfd={"enabled": False}), "second")
    policy = await env.state("ignored", "second")
    held = {held.type: (held.status, held.reason, held.message) for held in policy.status.conditions}
    assert held["Ready"][0] == "False"
    assert held["Error"][:2] == ("True", "Ignored")
    assert "first" in held["Error"][2]
    await env.event(StackEvent.IGNORED, "first", name="second")
    assert "gpu-feature-discovery" in await env.daemonsets()

    await env.client.delete(StoredClusterPolicy, "first")
    policy = await env.state("ready", "second")
    await until_async(lambda: _without(env, "gpu-feature-discovery"), within=60, saying="it is still there")

    async def all_seconds() -> bool:
        """What the second does not ask for goes with the first, when the collector comes by."""
        accounts = await env.held(LiveServiceAccount)
        return {owner.uid for held in accounts.values() for owner in held.metadata.owner_references} == {
            policy.metadata.uid
        }

    await until_async(all_seconds, within=150, saying="accounts of the first stay behind")


async def test_the_namespace_is_labelled_for_as_long_as_the_policy_says_so(env: OperatorEnv) -> None:
    own = dict.fromkeys(LABELS) | {_ENFORCE: "baseline"}
    await env.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": own}})
    before = (await env.client.get(Namespace, NAMESPACE)).metadata
    await env.policy(stock(psa={"enabled": True}))
    await env.state("ready")
    assert LABELS.items() <= (await _labels(env)).items()

    await env.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: "restricted"}}})
    await env.event(StackEvent.DRIFT_REPAIRED, f"Namespace/{NAMESPACE}")
    assert LABELS.items() <= (await _labels(env)).items()

    await env.patch_policy({"psa": {"enabled": False}})
    await env.state("ready")
    after = (await env.client.get(Namespace, NAMESPACE)).metadata
    assert (after.labels, after.annotations) == (before.labels, before.annotations)
    await env.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: None}}})


async def test_a_namespace_that_forbids_the_pods_is_reported_and_labelled_if_the_policy_says_so(
    env: OperatorEnv,
) -> None:
    await env.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: "restricted"}}})
    await env.nodes(gpu_node("shut-0"))
    await env.policy(stock())

    async def reported() -> bool:
        states = (await env.get_policy()).status.states
        return [(held.node, held.reason) for state in states for held in state.nodes][:1] == [("shut-0", "PodMissing")]

    await until_async(reported, within=60, saying="the status does not say that pods are refused")
    assert not await env.pods()
    await env.patch_policy({"psa": {"enabled": True}})
    await env.state("ready")
    await env.patch_policy({"psa": {"enabled": False}})
    await env.state("ready")
    assert (await _labels(env))[_ENFORCE] == "restricted"
    await env.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": {_ENFORCE: None}}})


async def test_deleting_the_policy_leaves_nothing_behind(env: OperatorEnv) -> None:
    before = await _labels(env)
    await env.nodes(gpu_node("gone-0"))
    await env.policy(stock(psa={"enabled": True}))
    await env.state("ready")
    assert LABELS.items() <= (await _labels(env)).items()
    assert _number(env, "gpu_operator_reconciliation_status") == _number(env, _READY, state=_EXPORTER) == 1

    await env.client.delete(StoredClusterPolicy, "cluster-policy")
    await until_async(env.empty, within=150, saying="operands stay behind")
    await until_async(lambda: _clean(env, "gone-0"), within=60, saying="labels stay behind")

    async def unmarked() -> bool:
        return await _labels(env) == before

    await until_async(unmarked, within=60, saying="the namespace stays marked")
    assert _number(env, "gpu_operator_reconciliation_status") == 0
    assert _number(env, _READY, state=_EXPORTER) is None


async def _objects(env: OperatorEnv) -> dict[str, tuple[str, str]]:
    """Every object of the stack with the state it belongs to and its version, which a DaemonSet changes by itself."""
    found: dict[str, tuple[str, str]] = {}
    for kind in CORE_KINDS:
        for name, held in (await env.held(kind)).items():
            meta = held.metadata
            version = f"{meta.uid}/{meta.generation or meta.resource_version}"
            found[f"{kind.resource.kind}/{name}"] = meta.labels[PodLabel.OPERAND], version
    return found


async def _pods(env: OperatorEnv) -> dict[str, str]:
    """The DaemonSet of each pod, by the pod's UID."""
    return {pod.metadata.uid: pod.controller.name for pod in await env.pods() if pod.controller}


async def _hashes(env: OperatorEnv, node: str) -> list[str]:
    """The template of each driver pod on a node."""
    drivers = [pod for pod in await env.pods() if pod.controller and pod.controller.name.startswith(DRIVER)]
    return [pod.metadata.labels[REVISION_HASH] for pod in drivers if pod.spec.node_name == node]


async def _labels(env: OperatorEnv) -> dict[str, str]:
    return (await env.client.get(Namespace, NAMESPACE)).metadata.labels


def _number(env: OperatorEnv, name: str, **labels: str) -> float | None:
    assert env.runtime is not None
    return env.runtime.metrics.registry.get_sample_value(name, labels)


async def _without(env: OperatorEnv, name: str) -> bool:
    return name not in await env.daemonsets()


async def _clean(env: OperatorEnv, name: str) -> bool:
    labels = (await env.node(name)).metadata.labels
    return not any(label.startswith((DEPLOY, "gpu.deckhouse.io/")) for label in labels) and (
        NodeLabel.PRESENT not in labels
    )
