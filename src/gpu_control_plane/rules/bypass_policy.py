"""The admission policies against ways to a card that go around pools.

`gpu-bypass` refuses what only somebody writes who reaches for cards: NVIDIA's variables, its runtime classes without a
card asked for, annotations that inject devices, the host's device files. `gpu-host-access` warns of what opens the
whole machine, cards included, and has honest uses: privileged containers, wide paths of the host, its processes.

What no policy can see is in docs/security.md, with what closes it. The chart and the local cluster install what is made
here; namespaces and runtime classes are settings.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.names import BYPASS, GROUP
from gpu_control_plane.rules.admission_policy import (
    IS_EXTENDED_RESOURCE,
    Manifest,
    binding,
    containers,
    policy,
    validation,
)
from gpu_control_plane.rules.trusted_namespaces import USUAL_NAMESPACES

EXPLICIT: Final = "gpu-bypass"
BROAD: Final = "gpu-host-access"

EXEMPT: Final = frozenset({"kube-system", *USUAL_NAMESPACES})
"""Where drivers, plugins and exporters run, which need the machine; our own namespace is another."""
RUNTIME_CLASSES: Final = ("nvidia", "nvidia-cdi", "nvidia-legacy")

RUNTIME_CLASSES_VARIABLE: Final = "runtimeClasses"
KUBELET_SOCKETS_VARIABLE: Final = "kubeletSockets"
"""Variables that the chart sets from its values."""

_RULES: Final = [
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["pods", "pods/ephemeralcontainers"],
    }
]
_ENVIRONMENT: Final = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES")
_NO_CARD: Final = ("", "void", "none")
_ANNOTATIONS: Final = (
    "cdi.k8s.io/",
    "cdi-devices.nri.io/",
    "devices.nri.io/",
    "cdi-devices.noderesource.dev/",
    "devices.noderesource.dev/",
)
_VISIBLE_BY_MOUNT: Final = "/var/run/nvidia-container-devices"
_CARD_PATHS: Final = ("/dev/nvidia", "/etc/cdi", "/var/run/cdi", "/run/cdi", "/run/nvidia", "/var/run/nvidia")
_SOCKET_PATHS: Final = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources")
_WIDE_PATHS: Final = (
    *("/", "/dev", "/dev/char", "/proc", "/sys", "/etc", "/run", "/var", "/var/run", "/var/lib", "/var/lib/kubelet"),
)


class BypassSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies are told by the chart's values."""

    namespace: str = DEFAULT_NAMESPACE
    """Where our own programs run, which is exempt."""
    exempt_namespaces: frozenset[str] = EXEMPT
    runtime_classes: tuple[str, ...] = RUNTIME_CLASSES
    deny_kubelet_sockets: bool = False
    """Other vendors' device plugins mount the kubelet's sockets, so by default they are only warned of."""


def bypass_policies(settings: BypassSettings | None = None) -> list[Manifest]:
    """The policies, each with its binding."""
    chosen = settings or BypassSettings()
    return [
        _policy(EXPLICIT, chosen, _explicit()),
        binding(EXPLICIT, ["Deny"]),
        _policy(BROAD, chosen, _broad()),
        binding(BROAD, ["Warn", "Audit"]),
    ]


def _explicit() -> list[Manifest]:
    return [
        _none_of(
            "containersWithVariable",
            "'The container ' + variables.containersWithVariable[0].name + ' sets a variable of NVIDIA\\'s runtime"
            f" ({' or '.join(_ENVIRONMENT)}), which hands out cards past every GPU pool. Leave it out:"
            " a container that asks for a card in resources.limits gets it without.'",
        ),
        _none_of(
            "containersWithMount",
            "'The container ' + variables.containersWithMount[0].name + ' mounts something below"
            f" {_VISIBLE_BY_MOUNT}, by which NVIDIA\\'s runtime hands out cards past every GPU pool. Leave it out.'",
        ),
        _none_of(
            "uselessRuntimeClass",
            "'The pod uses the runtime class ' + variables.uselessRuntimeClass[0] + ', which hands out cards, and asks"
            " for no card. Ask for one in resources.limits (kubectl get gpupools -o wide), or leave runtimeClassName"
            " out.'",
        ),
        _none_of(
            "deviceAnnotations",
            "'The annotation ' + variables.deviceAnnotations[0] + ' gives the pod devices past every GPU pool. Leave it"
            " out, and ask for a card in resources.limits (kubectl get gpupools -o wide).'",
        ),
        _none_of(
            "cardVolumes",
            "'The volume ' + variables.cardVolumes[0].name + ' is ' + variables.cardVolumes[0].hostPath.path +"
            " ' of the host, by which a pod reaches cards past every GPU pool. Leave it out, and ask for a card in"
            " resources.limits (kubectl get gpupools -o wide).'",
        ),
    ]


def _broad() -> list[Manifest]:
    return [
        _none_of(
            "privileged",
            "'The container ' + variables.privileged[0].name + ' is privileged, and so has every GPU of its node,"
            " whichever pool they are in.'",
        ),
        _none_of(
            "wideVolumes",
            "'The volume ' + variables.wideVolumes[0].name + ' is ' + variables.wideVolumes[0].hostPath.path +"
            " ' of the host, by which a pod can reach GPUs of its node, whichever pool they are in.'",
        ),
        _none_of(
            "hostProcesses",
            "'The pod sees the processes of its host (hostPID), those that hold GPUs among them.'",
        ),
    ]


def _policy(name: str, settings: BypassSettings, validations: list[Manifest]) -> Manifest:
    """On an update only what is new is judged: pods that were there before must stay usable."""
    made = policy(
        name,
        rules=_RULES,
        conditions=[{"name": "worth-a-look", "expression": _WORTH_A_LOOK[name]}],
        variables=_variables(settings, name),
        validations=validations,
    )
    exempt = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": sorted({settings.namespace, *settings.exempt_namespaces}),
    }
    made["spec"]["matchConstraints"]["namespaceSelector"] = {"matchExpressions": [exempt]}
    return made


def _none_of(found: str, message: str) -> Manifest:
    """Refuses pods for which a variable lists something, except of those who may."""
    return validation(f"variables.{found}.size() == 0 || variables.mayBypass", message)


def _variables(settings: BypassSettings, name: str) -> dict[str, str]:
    may_bypass = f".group('{GROUP}').resource('gpupools').check('{BYPASS}').allowed()"
    common = {
        "new": "request.operation == 'CREATE'",
        "containers": f"variables.new ? {containers('object.spec')}"
        " : object.spec.?ephemeralContainers.orValue([]).filter(c,"
        " !oldObject.spec.?ephemeralContainers.orValue([]).exists(old, old.name == c.name))",
        "volumes": "variables.new ? object.spec.?volumes.orValue([]).filter(v, has(v.hostPath)) : []",
        "mayBypass": f"authorizer{may_bypass} || authorizer.serviceAccount(request.namespace,"
        f" object.spec.?serviceAccountName.orValue('default')){may_bypass}",
        KUBELET_SOCKETS_VARIABLE: str(settings.deny_kubelet_sockets).lower(),
    }
    return {**common, **(_explicit_variables(settings) if name == EXPLICIT else _broad_variables())}


def _explicit_variables(settings: BypassSettings) -> dict[str, str]:
    return {
        RUNTIME_CLASSES_VARIABLE: _list(settings.runtime_classes),
        "containersWithVariable": "variables.containers.filter(c, c.?env.orValue([]).exists(e,"
        f" e.name in {_list(_ENVIRONMENT)} && (has(e.valueFrom) || !(e.?value.orValue('') in {_list(_NO_CARD)}))))",
        "containersWithMount": "variables.containers.filter(c, c.?volumeMounts.orValue([]).exists(m,"
        f" m.mountPath.matches({_path_pattern((_VISIBLE_BY_MOUNT, _VISIBLE_BY_MOUNT.removeprefix('/var')))})))",
        "asksForACard": "variables.containers.exists(c, c.?resources.?limits.orValue({}).exists(name,"
        f" {IS_EXTENDED_RESOURCE}))",
        "uselessRuntimeClass": "[object.spec.?runtimeClassName.orValue('')].filter(name, variables.new"
        f" && name in variables.{RUNTIME_CLASSES_VARIABLE} && !variables.asksForACard)",
        "oldAnnotations": "variables.new ? {} : oldObject.metadata.?annotations.orValue({})",
        "deviceAnnotations": "object.metadata.?annotations.orValue({}).filter(key,"
        f" {_list(_ANNOTATIONS)}.exists(prefix, key.startsWith(prefix)) && !(key in variables.oldAnnotations"
        " && variables.oldAnnotations[key] == object.metadata.annotations[key]))",
        "cardVolumes": f"variables.volumes.filter(v, v.hostPath.path.matches({_path_pattern(_CARD_PATHS)})"
        f" || (variables.{KUBELET_SOCKETS_VARIABLE} && v.hostPath.path.matches({_path_pattern(_SOCKET_PATHS)})))",
    }


def _broad_variables() -> dict[str, str]:
    return {
        "privileged": "variables.containers.filter(c, c.?securityContext.?privileged.orValue(false))",
        "wideVolumes": f"variables.volumes.filter(v, v.hostPath.path.matches({_path_pattern(_WIDE_PATHS, whole=True)})"
        f" || (!variables.{KUBELET_SOCKETS_VARIABLE} && v.hostPath.path.matches({_path_pattern(_SOCKET_PATHS)})))",
        "hostProcesses": "[variables.new && object.spec.?hostPID.orValue(false)].filter(yes, yes)",
    }


def _path_pattern(paths: Iterable[str], *, whole: bool = False) -> str:
    """A pattern, as a string of CEL, for paths that begin so, or are just so. `//` and `/./` are other ways of `/`."""
    slash = r"/(/|\\./)*"
    ways = "|".join(slash.join(part.replace(".", r"\\.") for part in path.strip("/").split("/")) for path in paths)
    return f"'^{slash}({ways}){r'[/.]*$' if whole else ''}'"


_ALL_CONTAINERS: Final = (
    f"({containers('object.spec')}).exists(c, {{0}}) || object.spec.?ephemeralContainers.orValue([]).exists(c, {{0}})"
)
_HAS_HOST_PATH: Final = "object.spec.?volumes.orValue([]).exists(v, has(v.hostPath))"
_WORTH_A_LOOK: Final = {
    EXPLICIT: f"has(object.spec.runtimeClassName) || {_HAS_HOST_PATH} || object.metadata.?annotations.orValue({{}})"
    ".exists(key, key.contains('.nri.io/') || key.startsWith('cdi.k8s.io/') || key.contains('.noderesource.dev/')) || "
    + _ALL_CONTAINERS.format(
        "c.?env.orValue([]).exists(e, e.name.startsWith('NVIDIA_'))"
        " || c.?volumeMounts.orValue([]).exists(m, m.mountPath.contains('nvidia-container-devices'))"
    ),
    BROAD: f"object.spec.?hostPID.orValue(false) || {_HAS_HOST_PATH} || "
    + _ALL_CONTAINERS.format("c.?securityContext.?privileged.orValue(false)"),
}
"""What every pod has to pay: whether there is anything in it that the policy could say something about."""


def _list(values: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
