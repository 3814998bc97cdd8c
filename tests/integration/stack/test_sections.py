"""What a policy says is carried out and nothing else: sections on and off, fields nobody knows, other policies."""

import pytest

from gpu_control_plane.api.nvidia.names import DEPLOY, NodeLabel, PodLabel, StackCondition, StackEvent, StackReason
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube.errors import Invalid
from gpu_control_plane.operator.stack.live import EVERYWHERE, LiveServiceAccount
from gpu_control_plane.operator.stack.namespace import LABELS
from integration.stack.scenarios import DRIVER, EXPORTER, SIX_EIGHT, stock
from integration.stack.theatre import NAMESPACE, Namespace, Theatre, gpu_node
from waiting import until_async

pytestmark = pytest.mark.asyncio(loop_scope="session")

_EXPORTER = "state-dcgm-exporter"


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


async def test_a_driver_that_is_to_come_precompiled_takes_the_place_of_the_one_before(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("pre-0"))
    await theatre.policy(stock())
    await theatre.state("ready")
    await theatre.patch_policy({"driver": {"usePrecompiled": True, "version": "595"}})
    await theatre.state("ready")
    drivers = [name for name in await theatre.daemonsets() if name.startswith(DRIVER)]
    assert drivers == [f"{DRIVER}-{SIX_EIGHT}-ubuntu24.04"]
    assert (await theatre.pod_of(drivers[0])).spec.node_name == "pre-0"


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

    await until_async(all_seconds, within=60, saying="accounts of the first stay behind")


async def test_deleting_the_policy_leaves_nothing_behind_but_the_mark_of_the_namespace(theatre: Theatre) -> None:
    await theatre.client.patch(Namespace, NAMESPACE, {"metadata": {"labels": dict.fromkeys(LABELS)}})
    await theatre.nodes(gpu_node("gone-0"))
    await theatre.policy(stock(psa={"enabled": True}))
    await theatre.state("ready")
    labels = (await theatre.client.get(Namespace, NAMESPACE)).metadata.labels
    assert LABELS.items() <= labels.items()

    await theatre.client.patch(
        Namespace, NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    )
    await theatre.told(StackEvent.DRIFT_REPAIRED, f"Namespace/{NAMESPACE}")
    assert LABELS.items() <= (await theatre.client.get(Namespace, NAMESPACE)).metadata.labels.items()

    await theatre.client.delete(StoredClusterPolicy, "cluster-policy")
    await until_async(theatre.empty, within=60, saying="operands stay behind")
    await until_async(lambda: _clean(theatre, "gone-0"), within=60, saying="labels stay behind")


async def _objects(theatre: Theatre) -> dict[str, tuple[str, str]]:
    """Every object of the stack with the state it belongs to and its version, which a DaemonSet changes by itself."""
    found: dict[str, tuple[str, str]] = {}
    for kind in EVERYWHERE:
        for name, held in (await theatre.held(kind)).items():
            meta = held.metadata
            version = f"{meta.uid}/{meta.generation or meta.resource_version}"
            found[f"{kind.resource.kind}/{name}"] = meta.labels[PodLabel.OPERAND], version
    return found


async def _without(theatre: Theatre, name: str) -> bool:
    return name not in await theatre.daemonsets()


async def _clean(theatre: Theatre, name: str) -> bool:
    labels = (await theatre.node(name)).metadata.labels
    return not any(label.startswith((DEPLOY, "gpu.deckhouse.io/")) for label in labels) and (
        NodeLabel.PRESENT not in labels
    )
