"""Whatever a fleet is made of: each node gets each operand once, with the runtime class that its runtime needs."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.operands import container_toolkit
from unit.operator.stack.container_builders import OPENSHIFT, ROWS, daemonsets, env, render_input

RUNTIME = "gpu.deckhouse.io/container-runtime"
VALIDATOR = "nvidia.com/gpu.deploy.operator-validator"
NODES = st.builds(
    NodeKind,
    system=st.sampled_from([OperatingSystem("ubuntu", "24.04"), OperatingSystem("rhel", "9.4"), None]),
    runtime=st.sampled_from(list(ContainerRuntime)),
    agent=st.booleans(),
)
CDI = st.builds(lambda cdi, nri: {"enabled": cdi, "nriPluginEnabled": nri}, st.booleans(), st.booleans())


def _covers(selector: dict[str, str], runtime: ContainerRuntime, *, agent: bool) -> bool:
    """Whether a node is selected. The agent's nodes say so at the gate of the validator."""
    return selector.get(RUNTIME, runtime.value) == runtime.value and selector.get(VALIDATOR) in (
        None,
        "agent" if agent else "true",
    )


@settings(deadline=None)  # the first one reads the assets
@given(nodes=st.sets(NODES, min_size=1, max_size=5), cdi=CDI, openshift=st.booleans())
def test_each_node_gets_each_operand_once(nodes: set[NodeKind], cdi: dict[str, Any], *, openshift: bool) -> None:
    scene = render_input(*nodes, openshift=OPENSHIFT if openshift else None, cdi=cdi)
    for row in ROWS:
        made = daemonsets(row.state, scene)
        assert len({held.name for held in made}) == len(made)
        for node in nodes:
            runtime = ContainerRuntime.CRIO if openshift else node.runtime
            (pod,) = [held for held in made if _covers(held.pod["nodeSelector"], runtime, agent=node.agent)]
            by_class = (
                row.sees_cards and not cdi["nriPluginEnabled"] and (cdi["enabled"] or runtime != ContainerRuntime.CRIO)
            )
            assert pod.pod.get("runtimeClassName") == ("nvidia" if by_class else None)


@settings(deadline=None)  # the first one reads the assets
@given(nodes=st.sets(NODES, min_size=1, max_size=5), cdi=CDI)
def test_each_node_gets_the_toolkit_of_its_runtime(nodes: set[NodeKind], cdi: dict[str, Any]) -> None:
    made = daemonsets(container_toolkit.STATE, render_input(*nodes, cdi=cdi))
    for node in nodes:
        (pod,) = [held for held in made if held.pod["nodeSelector"][RUNTIME] == node.runtime.value]
        assert env(pod)["RUNTIME"] == node.runtime.value
