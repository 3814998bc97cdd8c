"""What pods are created by whom, and the sentence that the API server answers with; None where it admits them."""

from typing import Any

import msgspec

from integration.access.env import Manifest, container, pod, pool

OURS = "gpu.deckhouse.io"
TRAINING = f"{OURS}/training"
_ONLY_THE_POD_COUNTS = "Users and groups do not count here, since a controller creates the pods."

POOLS = [
    pool("training", access={"namespaces": ["research"]}),
    pool("shared", access={"namespaceSelector": {}}),
    pool("seeing", access={"namespaceSelector": {"matchLabels": {"team": "vision"}}}),
    pool(
        "golden",
        access={
            "namespaceSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]}
        },
    ),
    pool("teamless", access={"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}),
    pool("trainers", access={"serviceAccounts": [{"namespace": "research", "name": "trainer"}]}),
    pool("people", access={"users": ["alice", "système:é"], "groups": ["ml-leads"]}),
    pool("own", resource={"name": "gpu.example.com/own"}, access={"namespaces": ["research"]}),
    pool(
        "mixed",
        access={"namespaces": ["research"]},
        allocation={
            "mode": "MIG",
            "mig": {"layout": [{"profile": "1g.10gb", "count": 2}, {"profile": "1g.10gb+me", "count": 1}]},
        },
    ),
    pool("nobody"),
    pool("empty", access={}),
    pool("verb"),
]
RETIRED = {"gpu.example.com/retired": "training"}
VERBS: dict[str, list[Manifest]] = {
    "verb": [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "carol"},
        {"kind": "ServiceAccount", "namespace": "vision", "name": "trainer"},
    ],
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A dry run of a creation."""

    what: str
    body: Manifest
    says: str | None = None
    """The sentence of the refusal."""
    warns: str | None = None
    """The sentence of a warning."""
    where: str = "research"
    who: str | None = "alice"
    groups: tuple[str, ...] = ()
    path: str = "/api/v1/namespaces/{}/pods"


def _refused(
    name: str, resource: str = "", *, where: str = "plain", account: str = "default", who: str = "alice"
) -> str:
    return (
        f"The pod asks for {resource or f'{OURS}/{name}'}, and the GPU pool {name} admits neither the namespace "
        f"{where}, nor the service account {account}, nor {who}, who creates the pod. An administrator can "
        f"name one of them in spec.access of the GPUPool {name}, or grant the RBAC verb use on it."
    )


def _refused_to_controller(name: str, *, where: str = "plain", account: str = "default") -> str:
    return (
        f"The pod asks for {OURS}/{name}, and the GPU pool {name} admits neither the namespace {where} nor the service "
        f"account {account}. {_ONLY_THE_POD_COUNTS}{_way_in(name)}"
    )


def _way_in(name: str) -> str:
    return (
        f" An administrator can name one of them in spec.access of the GPUPool {name}, or grant the RBAC verb use on "
        "it."
    )


def _unknown(resource: str) -> str:
    return (
        f"The pod asks for {resource}, which no GPU pool offers. What there is: kubectl get gpupools -o wide. "
        "A pool that was just made can be used in a moment."
    )


def _several(names: str, first: str, *, where: str = "plain", account: str = "default", who: str = "bob") -> str:
    return (
        f"The pod asks for {names}, and at least one of these GPU pools admits neither the namespace"
        f" {where}, nor the service account {account}, nor {who}, who creates the pod. An administrator can name one of"
        f" them in spec.access of the GPUPool {first}, or grant the RBAC verb use on it."
    )


def _init(resource: str, **more: Any) -> Manifest:
    return pod(initContainers=[container("first", {resource: "1"}, **more)])


NODE = "system:node:worker-1"
ACCESS = [
    Case(what="no card", body=pod(), where="plain"),
    Case(what="cpu and memory only", body=pod("cpu", "memory"), where="plain"),
    Case(what="another vendor's resource", body=pod("example.com/fpga"), where="plain"),
    Case(what="nvidia.com/gpu is not a pool's", body=pod("nvidia.com/gpu"), where="plain"),
    Case(what="a namespace that is named", body=pod(TRAINING)),
    Case(what="a namespace that is not", body=pod(TRAINING), where="plain", says=_refused("training")),
    Case(what="two cards", body=pod(TRAINING, quantity="2"), where="plain", says=_refused("training")),
    Case(what="none of a card", body=pod(TRAINING, quantity="0"), where="plain"),
    Case(what="none of an unknown pool", body=pod(f"{OURS}/typo", quantity="0"), where="plain"),
    Case(
        what="kube-system is not exempt",
        body=pod(TRAINING),
        where="kube-system",
        says=_refused("training", where="kube-system"),
    ),
    Case(what="no card in kube-system", body=pod(), where="kube-system"),
    Case(what="every namespace", body=pod(f"{OURS}/shared"), where="plain"),
    Case(what="every namespace, kube-system too", body=pod(f"{OURS}/shared"), where="kube-system"),
    Case(what="a label of the namespace", body=pod(f"{OURS}/seeing"), where="vision"),
    Case(what="another value of it", body=pod(f"{OURS}/seeing"), says=_refused("seeing", where="research")),
    Case(what="no such label", body=pod(f"{OURS}/seeing"), where="plain", says=_refused("seeing")),
    Case(what="an expression", body=pod(f"{OURS}/golden")),
    Case(
        what="an expression, empty value",
        body=pod(f"{OURS}/golden"),
        where="batch",
        says=_refused("golden", where="batch"),
    ),
    Case(what="a label that must be absent", body=pod(f"{OURS}/teamless"), where="plain"),
    Case(what="and is not", body=pod(f"{OURS}/teamless"), says=_refused("teamless", where="research")),
    Case(what="a service account", body=pod(f"{OURS}/trainers", serviceAccountName="trainer")),
    Case(what="another one", body=pod(f"{OURS}/trainers"), says=_refused("trainers", where="research")),
    Case(
        what="its name in another namespace",
        body=pod(f"{OURS}/trainers", serviceAccountName="trainer"),
        where="plain",
        says=_refused("trainers", account="trainer"),
    ),
    Case(what="a user", body=pod(f"{OURS}/people"), where="plain"),
    Case(what="another user", body=pod(f"{OURS}/people"), where="plain", who="bob", says=_refused("people", who="bob")),
    Case(what="a member of a group", body=pod(f"{OURS}/people"), where="plain", who="bob", groups=("ml-leads",)),
    Case(
        what="a member of another",
        body=pod(f"{OURS}/people"),
        where="plain",
        who="bob",
        groups=("ml",),
        says=_refused("people", who="bob"),
    ),
    Case(what="a user of a name with accents", body=pod(f"{OURS}/people"), where="plain", who="système:é"),
    Case(
        what="a user called as a line of the index",
        body=pod(f"{OURS}/people"),
        where="plain",
        who="x\\nuser alice",
        says=_refused("people", who="x\\\\nuser alice"),
    ),
    Case(
        what="a group called as a line of the index",
        body=pod(TRAINING),
        where="plain",
        who="bob",
        groups=("x\\nnamespace plain",),
        says=_refused("training", who="bob"),
    ),
    Case(
        what="a controller creates for a user who may",
        body=pod(f"{OURS}/people"),
        where="plain",
        who="system:serviceaccount:kube-system:replicaset-controller",
        says=_refused_to_controller("people"),
    ),
    Case(
        what="the operator of Ray creates for somebody",
        body=pod(TRAINING, serviceAccountName="trainer"),
        where="plain",
        who="system:serviceaccount:d8-gpu-operator:gpu-control-plane-controller",
        says=_refused_to_controller("training", account="trainer"),
    ),
    Case(
        what="an account of a namespace whose name only begins alike",
        body=pod(TRAINING),
        where="plain",
        who="system:serviceaccount:plain-2:builder",
        says=_refused_to_controller("training"),
    ),
    Case(
        what="an account of the same namespace is somebody who may be named",
        body=pod(TRAINING),
        where="plain",
        who="system:serviceaccount:plain:builder",
        says=_refused("training", who="system:serviceaccount:plain:builder"),
    ),
    Case(
        what="a controller creates in a namespace that may",
        body=pod(TRAINING),
        who="system:serviceaccount:kube-system:replicaset-controller",
    ),
    Case(what="an own name", body=pod("gpu.example.com/own")),
    Case(
        what="an own name, elsewhere",
        body=pod("gpu.example.com/own"),
        where="plain",
        says=_refused("own", "gpu.example.com/own"),
    ),
    Case(what="the default name of a pool with an own one", body=pod(f"{OURS}/own"), says=_unknown(f"{OURS}/own")),
    Case(
        what="an own name that the pool has given up",
        body=pod("gpu.example.com/retired"),
        says=_refused("training", "gpu.example.com/retired", where="research"),
    ),
    Case(what="a profile of a mixed layout", body=pod(f"{OURS}/mixed.1g.10gb")),
    Case(what="a profile with an attribute", body=pod(f"{OURS}/mixed.1g.10gb.me")),
    Case(
        what="a profile, elsewhere",
        body=pod(f"{OURS}/mixed.1g.10gb"),
        where="plain",
        says=_refused("mixed", f"{OURS}/mixed.1g.10gb"),
    ),
    Case(
        what="a profile that the layout has not",
        body=pod(f"{OURS}/mixed.7g.80gb"),
        says=_unknown(f"{OURS}/mixed.7g.80gb"),
    ),
    Case(what="the stem of a mixed layout", body=pod(f"{OURS}/mixed"), says=_unknown(f"{OURS}/mixed")),
    Case(what="an unknown pool", body=pod(f"{OURS}/typo"), says=_unknown(f"{OURS}/typo")),
    Case(
        what="an unknown pool, by an administrator", body=pod(f"{OURS}/typo"), who=None, says=_unknown(f"{OURS}/typo")
    ),
    Case(what="a pool without access", body=pod(f"{OURS}/nobody"), says=_refused("nobody", where="research")),
    Case(what="a pool whose access is empty", body=pod(f"{OURS}/empty"), says=_refused("empty", where="research")),
    Case(what="a pool without access, by an administrator", body=pod(f"{OURS}/nobody"), who=None),
    Case(what="the verb use for who creates", body=pod(f"{OURS}/verb"), where="plain", who="carol"),
    Case(
        what="the verb use for the service account",
        body=pod(f"{OURS}/verb", serviceAccountName="trainer"),
        where="vision",
        who="bob",
    ),
    Case(
        what="the verb use for another pool",
        body=pod(f"{OURS}/nobody"),
        where="plain",
        who="carol",
        says=_refused("nobody", who="carol"),
    ),
    Case(
        what="the verb use for nobody here",
        body=pod(f"{OURS}/verb"),
        where="plain",
        who="bob",
        says=_refused("verb", who="bob"),
    ),
    Case(
        what="every right in a namespace is not the verb",
        body=pod(f"{OURS}/verb"),
        where="plain",
        who="owner",
        says=_refused("verb", who="owner"),
    ),
    Case(what="an init container", body=_init(TRAINING), where="plain", says=_refused("training")),
    Case(what="a sidecar", body=_init(TRAINING, restartPolicy="Always"), where="plain", says=_refused("training")),
    Case(what="an init container that may", body=_init(TRAINING)),
    Case(what="two pools, both may", body=pod(TRAINING, f"{OURS}/shared")),
    Case(what="two pools, one may not", body=pod(f"{OURS}/shared", TRAINING), where="plain", says=_refused("training")),
    Case(
        what="two pools, none may",
        body=pod(TRAINING, f"{OURS}/nobody"),
        where="plain",
        who="bob",
        says=_several(f"{TRAINING} and {OURS}/nobody", "training"),
    ),
    Case(
        what="three pools, none may",
        body=pod(TRAINING, f"{OURS}/nobody", f"{OURS}/empty"),
        where="plain",
        who="bob",
        says=_several(f"{TRAINING} and {OURS}/nobody and {OURS}/empty", "training"),
    ),
    Case(
        what="five pools in seven containers, none may",
        body=pod(
            *(f"{OURS}/{name}" for name in ("training", "nobody", "training", "empty", "verb", "nobody", "trainers"))
        ),
        where="plain",
        who="bob",
        says=_several(f"{TRAINING} and {OURS}/nobody and {OURS}/empty and {OURS}/verb and {OURS}/trainers", "training"),
    ),
    Case(what="one pool in two containers", body=pod(TRAINING, TRAINING), where="plain", says=_refused("training")),
    Case(what="two pools, one unknown", body=pod(TRAINING, f"{OURS}/typo"), says=_unknown(f"{OURS}/typo")),
    Case(what="two pools, one by the verb", body=pod(TRAINING, f"{OURS}/verb"), who="carol"),
    Case(
        what="bound by hand (nodeName)",
        body=pod(TRAINING, nodeName="worker-1"),
        where="plain",
        says=_refused("training"),
    ),
    Case(
        what="the mirror of a static pod",
        where="plain",
        who=None,
        groups=(),
        body=pod(f"{OURS}/typo", nodeName="worker-1")
        | {"metadata": {"name": "it", "annotations": {"kubernetes.io/config.mirror": "x"}}},
        says=_unknown(f"{OURS}/typo"),
    ),
    Case(
        what="a name with generateName",
        body=pod(TRAINING) | {"metadata": {"generateName": "it-"}},
        where="plain",
        says=_refused("training"),
    ),
]


def _workload(kind: str, template: Manifest) -> Manifest:
    labels = {"app": "it"}
    inner = {"metadata": {"labels": labels}, "spec": template["spec"]}
    if kind in {"Job", "CronJob"}:
        inner["spec"] = {**inner["spec"], "restartPolicy": "Never"}
        spec: Manifest = {"template": inner}
        if kind == "CronJob":
            spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    else:
        spec = {"selector": {"matchLabels": labels}, "template": inner}
    version = "batch/v1" if kind in {"Job", "CronJob"} else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "it"}, "spec": spec}


def _path(kind: str) -> str:
    group = "batch" if kind in {"Job", "CronJob"} else "apps"
    return f"/apis/{group}/v1/namespaces/{{}}/{kind.lower()}s"


def _warned(name: str, where: str) -> str:
    return (
        f"Its pods would be refused: they ask for {OURS}/{name}, and the GPU pool {name} admits neither the namespace "
        f"{where} nor the service account default. {_ONLY_THE_POD_COUNTS}{_way_in(name)}"
    )


KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")
WORKLOADS = [
    *(Case(what=f"a {kind} whose pods may", body=_workload(kind, pod(TRAINING)), path=_path(kind)) for kind in KINDS),
    *(
        Case(
            what=f"a {kind} whose pods may not",
            body=_workload(kind, pod(TRAINING)),
            path=_path(kind),
            where="plain",
            warns=_warned("training", "plain"),
        )
        for kind in KINDS
    ),
    Case(
        what="a Deployment of a user who may",
        body=_workload("Deployment", pod(f"{OURS}/people")),
        path=_path("Deployment"),
        where="plain",
        warns=_warned("people", "plain"),
    ),
    Case(
        what="a Deployment that asks for an unknown pool",
        body=_workload("Deployment", pod(f"{OURS}/typo")),
        path=_path("Deployment"),
        warns=f"Its pods would be refused: they ask for {OURS}/typo, which no GPU pool offers. What there is: kubectl "
        "get gpupools -o wide. A pool that was just made can be used in a moment.",
    ),
]

VARIABLE = (
    "The container main sets a variable of NVIDIA's runtime (NVIDIA_VISIBLE_DEVICES or NVIDIA_MIG_CONFIG_DEVICES or "
    "NVIDIA_MIG_MONITOR_DEVICES), which hands out cards past every GPU pool. Leave it out: a container that asks for a "
    "card in resources.limits gets it without."
)


def _env(value: str | None, name: str = "NVIDIA_VISIBLE_DEVICES", **more: object) -> Manifest:
    variable = {"name": name} if value is None else {"name": name, "value": value}
    return pod(containers=[container("main", env=[{**variable, **more}])])


def _runtime_class(name: str) -> str:
    return (
        f"The pod uses the runtime class {name}, which hands out cards, and asks for no card. Ask for one in "
        "resources.limits (kubectl get gpupools -o wide), or leave runtimeClassName out."
    )


def _annotated(key: str) -> Manifest:
    return pod() | {"metadata": {"name": "it", "annotations": {key: "nvidia.com/gpu=all"}}}


def _annotation(key: str) -> str:
    return (
        f"The annotation {key} gives the pod devices past every GPU pool. Leave it out, and ask for a card in "
        "resources.limits (kubectl get gpupools -o wide)."
    )


def _volume(path: str, **spec: Any) -> Manifest:
    return pod(volumes=[{"name": "host", "hostPath": {"path": path}}], **spec)


def _reached(path: str) -> str:
    return (
        f"The volume host is {path} of the host, by which a pod reaches cards past every GPU pool. Leave it out, and "
        "ask for a card in resources.limits (kubectl get gpupools -o wide)."
    )


def _wide(path: str) -> str:
    return (
        f"The volume host is {path} of the host, by which a pod can reach GPUs of its node, whichever pool they are in."
    )


PRIVILEGED = "The container main is privileged, and so has every GPU of its node, whichever pool they are in."
_MOUNTED: dict[str, Any] = {
    "volumes": [{"name": "all", "emptyDir": {}}],
    "containers": [
        container("main", volumeMounts=[{"name": "all", "mountPath": "/var/run/nvidia-container-devices/all"}])
    ],
}

BYPASSES = [
    Case(what="all cards by a variable", body=_env("all"), says=VARIABLE),
    Case(what="one card by a variable", body=_env("0"), says=VARIABLE),
    Case(what="a card by its UUID", body=_env("GPU-0e1f"), says=VARIABLE),
    Case(
        what="a variable beside a pool's card",
        says=VARIABLE,
        body=pod(
            containers=[container("main", {TRAINING: "1"}, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]
        ),
    ),
    Case(what="no card by a variable: void", body=_env("void")),
    Case(what="no card by a variable: none", body=_env("none")),
    Case(what="no card by a variable: empty", body=_env("")),
    Case(what="a variable without a value", body=_env(None)),
    Case(
        what="a variable from elsewhere",
        says=VARIABLE,
        body=_env(None, valueFrom={"configMapKeyRef": {"name": "a", "key": "b"}}),
    ),
    Case(what="a variable from another", body=_env("$(OTHER)"), says=VARIABLE),
    Case(what="the right to partition cards", body=_env("all", "NVIDIA_MIG_CONFIG_DEVICES"), says=VARIABLE),
    Case(what="a variable that gives no card", body=_env("compute", "NVIDIA_DRIVER_CAPABILITIES")),
    Case(
        what="a variable of an init container",
        says=VARIABLE.replace("main", "first"),
        body=pod(initContainers=[container("first", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])]),
    ),
    Case(
        what="cards by mounts",
        body=pod(**_MOUNTED),
        says="The container main mounts something below /var/run/nvidia-container-devices, by which NVIDIA's runtime "
        "hands out cards past every GPU pool. Leave it out.",
    ),
    Case(what="NVIDIA's runtime class, no card", body=pod(runtimeClassName="nvidia"), says=_runtime_class("nvidia")),
    Case(what="another of them", body=pod(runtimeClassName="nvidia-cdi"), says=_runtime_class("nvidia-cdi")),
    Case(what="NVIDIA's runtime class with a pool's card", body=pod(TRAINING, runtimeClassName="nvidia")),
    Case(what="NVIDIA's runtime class with an own name", body=pod("gpu.example.com/own", runtimeClassName="nvidia")),
    Case(what="NVIDIA's runtime class with nvidia.com/gpu", body=pod("nvidia.com/gpu", runtimeClassName="nvidia")),
    Case(
        what="NVIDIA's runtime class with cpu and memory only",
        body=pod("cpu", "memory", runtimeClassName="nvidia"),
        says=_runtime_class("nvidia"),
    ),
    Case(what="another runtime class", body=pod(runtimeClassName="gvisor")),
    *(
        Case(what=f"the annotation {key}", body=_annotated(key), says=_annotation(key))
        for key in (
            "cdi.k8s.io/gpu",
            "cdi-devices.nri.io/container.main",
            "devices.nri.io/container.main",
            "devices.noderesource.dev/container.main",
        )
    ),
    Case(what="another annotation", body=_annotated("example.com/cdi.k8s.io")),
    *(
        Case(what=f"the host's {path}", body=_volume(path), says=_reached(path))
        for path in (
            "/dev/nvidia0",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-caps",
            "//dev/./nvidia0",
            "/etc/cdi",
            "/var/run/cdi",
            "/run/cdi/gpu.yaml",
            "/run/nvidia/driver",
        )
    ),
    *(
        Case(what=f"the host's {path}", body=_volume(path), warns=_wide(path))
        for path in (
            "/",
            "/dev",
            "/dev/",
            "/proc",
            "/var/lib/kubelet",
            "/var/lib/kubelet/device-plugins",
            "/var/lib/kubelet/pod-resources",
        )
    ),
    *(
        Case(what=f"the host's {path}", body=_volume(path))
        for path in ("/dev/fuse", "/var/log", "/etc/ssl", "/data/dev/nvidia0")
    ),
    Case(
        what="a privileged container",
        body=pod(containers=[container("main", securityContext={"privileged": True})]),
        warns=PRIVILEGED,
    ),
    Case(
        what="the host's processes",
        body=pod(hostPID=True),
        warns="The pod sees the processes of its host (hostPID), those that hold GPUs among them.",
    ),
    Case(what="kube-system is exempt", body=_volume("/dev/nvidia0"), where="kube-system"),
    Case(
        what="privileged in kube-system",
        where="kube-system",
        body=pod(containers=[container("main", securityContext={"privileged": True})]),
    ),
    Case(what="the verb bypass for who creates", body=_volume("/dev/nvidia0"), who="dora"),
    Case(
        what="the verb bypass for the service account",
        body=_volume("/dev/nvidia0", serviceAccountName="trainer"),
        where="batch",
    ),
    Case(what="an administrator", body=_volume("/dev/nvidia0"), who=None),
]
