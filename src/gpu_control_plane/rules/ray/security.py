"""What is wrong with authentication, network policies, TLS and the collector of logs."""

from typing import Final

from gpu_control_plane.api.ray.cluster import AuthMode, GroupSpec, NetworkRules, RayClusterSpec
from gpu_control_plane.kube.sentences import some_of
from gpu_control_plane.rules.ray.problem import Facts, Faults
from gpu_control_plane.rules.ray.templates import pod_spec
from gpu_control_plane.rules.ray.texts import at_least, is_dns_label

_TOKEN_SINCE: Final = (2, 52, 0)
_KUBERNETES_TOKEN_SINCE: Final = (2, 55, 0)
_TLS_ENV: Final = ("RAY_USE_TLS", "RAY_TLS_")
TLS_VOLUME: Final = "ray-tls"
TLS_PATH: Final = "/etc/ray/tls"
_BACKEND_ENV: Final = "STORAGE_BACKEND"
DENY_ALL_INGRESS: Final = "DenyAllIngress"
DENY_ALL_EGRESS: Final = "DenyAllEgress"


def auth_faults(spec: RayClusterSpec, path: str, maker: str) -> Faults:
    """Of authentication; `maker` is the kind that the spec is in, if it is no RayCluster."""
    options = spec.auth_options
    if options is None:
        return
    given = f"rayVersion is {spec.ray_version}" if spec.ray_version else "rayVersion is not given"
    token = options.mode == AuthMode.TOKEN
    if token and not at_least(spec.ray_version, _TOKEN_SINCE):
        yield f"{path}.authOptions.mode", f"token needs Ray 2.52.0 or later, and {given}"
    if not options.enable_k8s_token_auth:
        return
    field = f"{path}.authOptions.enableK8sTokenAuth"
    if maker:
        yield field, f"it works in a RayCluster of its own only, and this is a {maker}: remove it"
    if not token:
        yield field, "it needs the mode token: set authOptions.mode"
    if not at_least(spec.ray_version, _KUBERNETES_TOKEN_SINCE):
        yield field, f"it needs Ray 2.55.0 or later, and {given}"
    if options.secret_name:
        yield f"{path}.authOptions.secretName", "with enableK8sTokenAuth no Secret is read: remove one of the two"


def network_faults(spec: RayClusterSpec, path: str) -> Faults:
    """Of network policies: rules only for what is refused, and only for groups that are there."""
    policy = spec.network_policy
    if policy is None:
        return
    names = dict.fromkeys(group.group_name for group in spec.worker_group_specs)
    for index, name in enumerate(group.group_name for group in spec.worker_group_specs):
        if not is_dns_label(name):
            yield (
                f"{path}.workerGroupSpecs[{index}].groupName",
                f"a NetworkPolicy is named after {name!r}: take at most 63 lower case letters, digits and -",
            )
    place, there = f"{path}.networkPolicy", some_of(names) or "none"
    for field, rules in (("head", policy.head), ("worker", policy.worker)):
        if rules is not None:
            yield from _direction_faults(rules, f"{place}.{field}", policy.mode)
    for index, group in enumerate(policy.worker_groups):
        here = f"{place}.workerGroups[{index}]"
        if group.group_name not in names:
            yield f"{here}.groupName", f"there is no worker group {group.group_name}: there is {there}"
        yield from _direction_faults(group, here, policy.mode)


def tls_faults(spec: RayClusterSpec, path: str, facts: Facts) -> Faults:
    """Of TLS, whose variables and files are ours."""
    if spec.tls_options is None or not spec.tls_options.enabled:
        return
    if not facts.cert_manager:
        yield f"{path}.tlsOptions.enabled", "certificates come from cert-manager, which is not there: install it first"
    for place, group in _groups(spec):
        pod, here = pod_spec(group.template), f"{path}.{place}.template.spec"
        for name in pod.env():
            if name.startswith(_TLS_ENV):
                yield f"{here}.containers[0].env", f"{name} is set where tlsOptions is enabled: remove it"
        if any(volume.name == TLS_VOLUME for volume in pod.volumes):
            yield f"{here}.volumes", f"{TLS_VOLUME} is the name of the volume of certificates: call yours otherwise"
        for mount in pod.containers[0].volume_mounts if pod.containers else ():
            if mount.name == TLS_VOLUME or mount.mount_path.rstrip("/") == TLS_PATH:
                yield (
                    f"{here}.containers[0].volumeMounts",
                    f"certificates are mounted at {TLS_PATH} from the volume {TLS_VOLUME}: take another path",
                )


def history_faults(spec: RayClusterSpec, path: str) -> Faults:
    """Of the collector of logs."""
    if spec.history_server_options is None:
        return
    place = f"{path}.historyServerOptions.collectorOptions"
    options = spec.history_server_options.collector_options
    if options is None or not options.image:
        yield f"{place}.image", "it is needed: name the image of the collector"
    if options is None or not any(one.get("name") == _BACKEND_ENV for one in options.env):
        yield f"{place}.env", f"{_BACKEND_ENV} is needed: it says where logs are kept"


def _direction_faults(rules: NetworkRules, path: str, mode: str) -> Faults:
    if rules.ingress_rules and mode == DENY_ALL_EGRESS:
        yield f"{path}.ingressRules", f"{mode} lets everybody in already: remove them, or set mode to DenyAll"
    if rules.egress_rules and mode == DENY_ALL_INGRESS:
        yield f"{path}.egressRules", f"{mode} lets everything out already: remove them, or set mode to DenyAll"


def _groups(spec: RayClusterSpec) -> list[tuple[str, GroupSpec]]:
    workers = enumerate(spec.worker_group_specs)
    return [
        ("headGroupSpec", spec.head_group_spec),
        *((f"workerGroupSpecs[{index}]", group) for index, group in workers),
    ]
