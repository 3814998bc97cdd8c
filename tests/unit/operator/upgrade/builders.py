"""Builders of nodes and pods for the tests of upgrades."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.api.pod import Container, ContainerResources, EmptyDir, Pod, PodSpec, PodStatus, Volume
from gpu_control_plane.kube.objects import ObjectMeta, OwnerReference
from gpu_control_plane.operator.upgrade.node_view import DriverPod, NodeView

NOW = 1_900_000_000.0
POLICY = UpgradePolicy(auto_upgrade=True)
CURRENT = DriverPod(name="driver-new", uid="d-new", created=NOW - 10)
STALE = DriverPod(name="driver-old", uid="d-old", current=False, created=NOW - 9000)
ORPHAN = DriverPod(name="driver-orphan", uid="d-orphan", orphan=True, created=NOW - 9000)
SKIP: dict[str, str] = {NodeLabel.UPGRADE_SKIP: "true"}
UNREADY = replace(CURRENT, ready=False)
CRASHING = replace(UNREADY, restarts=11, trouble="nvidia-driver-ctr: CrashLoopBackOff")


def view(
    state: UpgradeState = UpgradeState.NONE,
    *drivers: DriverPod,
    name: str = "worker",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **rest: object,
) -> NodeView:
    """A node in a state, with its driver pods. By default its present step has just begun, and a driver of
    the revision `r2` is meant for it."""
    held = {str(NodeLabel.UPGRADE_STATE): state.value} if state else {}
    given = {str(key): value for key, value in (labels or {}).items()}
    rest.setdefault("wanted", "r2")
    since = {str(NodeAnnotation.STEP_SINCE): str(int(NOW))} if state else {}
    noted = {str(key): value for key, value in (annotations or {}).items()}
    return NodeView(name=name, labels=held | given, annotations=since | noted, drivers=drivers, **rest)  # type: ignore[arg-type]


def gpu_pod(
    name: str = "train-1",
    *,
    resource: str = "nvidia.com/gpu",
    owner: str | None = "ReplicaSet",
    empty_dir: bool = False,
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
    node: str = "worker",
) -> Pod:
    """A pod that requests a card, by default with a controller."""
    references = (
        (OwnerReference(api_version="apps/v1", kind=owner, name="o", uid="o", controller=True),) if owner else ()
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="work",
            uid=f"uid-{node}-{name}",
            labels={str(key): value for key, value in (labels or {}).items()},
            owner_references=references,
        ),
        spec=PodSpec(
            node_name=node,
            containers=(
                Container(name="main", resources=ContainerResources(limits={resource: "1"} if resource else {})),
            ),
            volumes=(Volume(name="scratch", empty_dir=EmptyDir()),) if empty_dir else (),
        ),
        status=PodStatus(phase=phase),
    )


def cordoned(state: UpgradeState, *drivers: DriverPod, **rest: object) -> NodeView:
    return view(state, *drivers, unschedulable=True, **rest)  # type: ignore[arg-type]


def ago(annotation: NodeAnnotation, seconds: float) -> dict[str, str]:
    return {annotation: str(int(NOW - seconds))}


TRAINING = gpu_pod("job", labels={"app": "train"})
