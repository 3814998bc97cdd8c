"""The rules that Deckhouse's webhooks and dhctl's preflight hold documents to, as far as they need no cluster. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from typing import Any, Final

from gpu_control_plane.api.selectors import matches_labels
from gpu_control_plane.deckhouse.configuration import TOLERATED_KEYS
from gpu_control_plane.deckhouse.gpu import MODULE
from gpu_control_plane.deckhouse.kinds import Document
from gpu_control_plane.deckhouse.kinds.configuration import (
    ClusterConfiguration,
    InitConfiguration,
    ModuleConfig,
    StaticClusterConfiguration,
)
from gpu_control_plane.deckhouse.kinds.nodes import (
    GPU,
    NodeGroup,
    NodeGroupConfiguration,
    NodeGroupSpec,
    SSHCredentials,
    StaticInstance,
)
from gpu_control_plane.deckhouse.kinds.services import (
    CephClusterAuthentication,
    CephClusterConnection,
    CephStorageClass,
    IngressNginxController,
    LocalPathProvisioner,
    User,
)
from gpu_control_plane.deckhouse.module_settings import wrong_settings
from gpu_control_plane.deckhouse.secrets import is_bcrypt_hash

_API_SERVER_PORT: Final = 6443
_DOMAIN_TEMPLATE: Final = re.compile(r"^([a-z0-9-]*%s[a-z0-9-]*)(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$")


def rules_of(documents: Sequence[Document]) -> Iterator[str]:
    """Every rule that is broken, as a sentence that begins with the document."""
    yield from _duplicates(documents)
    yield from _networks(documents)
    yield from _module_configs(documents)
    yield from _node_groups(documents)
    yield from _machines(documents)
    yield from _references(documents)
    for document in documents:
        yield from _single(document)


def of_kind[Kind: Document](documents: Sequence[Document], kind: type[Kind]) -> list[Kind]:
    return [document for document in documents if isinstance(document, kind)]


def _duplicates(documents: Sequence[Document]) -> Iterator[str]:
    for title, number in Counter(document.title for document in documents).items():
        if number > 1:
            yield f"{title} is there {number} times: the last would replace the others. Keep one."


def _networks(documents: Sequence[Document]) -> Iterator[str]:
    networks: list[tuple[str, IPv4Network]] = []
    for cluster in of_kind(documents, ClusterConfiguration):
        networks.append(("podSubnetCIDR", IPv4Network(cluster.pod_subnet_cidr, strict=False)))
        networks.append(("serviceSubnetCIDR", IPv4Network(cluster.service_subnet_cidr, strict=False)))
    for static in of_kind(documents, StaticClusterConfiguration):
        networks += [
            ("internalNetworkCIDRs", IPv4Network(cidr, strict=False)) for cidr in static.internal_network_cidrs
        ]
    for number, (name, network) in enumerate(networks):
        for other, earlier in networks[:number]:
            if network.overlaps(earlier):
                yield f"{name} {network} overlaps {other} {earlier}: choose others."


def _module_configs(documents: Sequence[Document]) -> Iterator[str]:
    configs = {config.metadata.name: config for config in of_kind(documents, ModuleConfig)}
    for config in configs.values():
        if config.spec.settings and config.spec.version is None:
            yield f"{config.title}: settings need spec.version, the version of their schema: add it."
        if config.metadata.name == MODULE:
            yield from (f"{config.title}: {fault}" for fault in wrong_settings(config.spec.settings))
    template = _custom(configs, "publicDomainTemplate")
    domains = [cluster.cluster_domain for cluster in of_kind(documents, ClusterConfiguration)]
    if isinstance(template, str):
        if template.count("%s") != 1 or not _DOMAIN_TEMPLATE.match(template):
            yield (
                f"ModuleConfig global: publicDomainTemplate {template!r} needs exactly one %s in a lower-case "
                "domain, such as %s.k8s.example.com."
            )
        for domain in domains:
            if template.endswith(domain):
                yield f"ModuleConfig global: publicDomainTemplate lies in clusterDomain {domain}: use another."
    deckhouse = configs.get("deckhouse")
    if deckhouse and "registry" in deckhouse.spec.settings and of_kind(documents, InitConfiguration):
        yield "ModuleConfig deckhouse: registry is set here and in InitConfiguration: keep one of the two."


def _custom(configs: dict[str, ModuleConfig], *path: str) -> Any:
    """A setting of all modules."""
    value: Any = configs["global"].spec.settings.get("modules", {}) if "global" in configs else {}
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _node_groups(documents: Sequence[Document]) -> Iterator[str]:
    configs = {config.metadata.name: config for config in of_kind(documents, ModuleConfig)}
    custom = _custom(configs, "placement", "customTolerationKeys") or []
    if not isinstance(custom, list) or not all(isinstance(key, str) for key in custom):
        yield "ModuleConfig global: modules.placement.customTolerationKeys is a list of the keys of taints: correct it."
        custom = []
    tolerated = {*TOLERATED_KEYS, *custom}
    for group in of_kind(documents, NodeGroup):
        taints = group.spec.node_template.taints if group.spec.node_template else ()
        for key in sorted({taint.key for taint in taints} - tolerated):
            yield (
                f"{group.title}: taint {key} is not in modules.placement.customTolerationKeys of ModuleConfig global: "
                "add it there, or Deckhouse refuses the group."
            )
        for (key, effect), number in Counter((taint.key, taint.effect) for taint in taints).items():
            if number > 1:
                yield f"{group.title}: {number} taints have key {key} and effect {effect}: keep one."
        yield from (f"{group.title}: {problem}" for problem in _group_spec(group.spec))


def _group_spec(spec: NodeGroupSpec) -> Iterator[str]:
    if spec.cri:
        if spec.cri.type == "Docker":
            yield "cri.type Docker is not supported any more: use Containerd or ContainerdV2."
        if spec.cri.containerd is not None and spec.cri.type != "Containerd":
            yield "cri.containerd needs cri.type Containerd."
        if spec.cri.containerd_v2 is not None and spec.cri.type != "ContainerdV2":
            yield "cri.containerdV2 needs cri.type ContainerdV2."
    if (spec.node_type == "CloudEphemeral") != (spec.cloud_instances is not None):
        yield "cloudInstances belong to nodeType CloudEphemeral, and that needs them."
    if spec.static_instances and spec.node_type not in ("Static", "CloudStatic"):
        yield f"staticInstances belong to nodeType Static or CloudStatic, and this is {spec.node_type}."
    if spec.disruptions and spec.disruptions.approval_mode == "RollingUpdate" and spec.node_type != "CloudEphemeral":
        yield "disruptions.approvalMode RollingUpdate works with nodeType CloudEphemeral only: use Automatic or Manual."
    kubelet = spec.kubelet
    if kubelet and kubelet.topology_manager and kubelet.topology_manager.policy and kubelet.resource_reservation:
        reserved = kubelet.resource_reservation
        if reserved.mode == "Off" or (reserved.mode == "Static" and not (reserved.static or {}).get("cpu")):
            yield "kubelet.topologyManager.policy needs reserved CPUs: resourceReservation Auto, or Static with cpu."
    if spec.gpu:
        yield from _gpu(spec.gpu)


def _gpu(gpu: GPU) -> Iterator[str]:
    if gpu.time_slicing is not None and gpu.sharing != "TimeSlicing":
        yield "gpu.timeSlicing belongs to gpu.sharing TimeSlicing."
    if gpu.mig is not None and gpu.sharing != "MIG":
        yield "gpu.mig belongs to gpu.sharing MIG."
    if gpu.mig is not None and (gpu.mig.parted_config == "custom") != bool(gpu.mig.custom_configs):
        yield "gpu.mig.customConfigs belong to partedConfig custom, and that needs them."
    if gpu.mig is not None:
        for index, number in Counter(config.index for config in gpu.mig.custom_configs).items():
            if number > 1:
                yield f"gpu.mig.customConfigs names card {index} {number} times: join them."


def _machines(documents: Sequence[Document]) -> Iterator[str]:
    instances = of_kind(documents, StaticInstance)
    credentials = {each.metadata.name for each in of_kind(documents, SSHCredentials)}
    addresses: dict[str, str] = {}
    for instance in instances:
        address = instance.spec.address
        if address in addresses:
            yield f"{instance.title}: {addresses[address]} has the address {address}, too: give each machine once."
        addresses.setdefault(address, instance.title)
        if credentials and instance.spec.credentials_ref.name not in credentials:
            yield f"{instance.title}: there are no SSHCredentials {instance.spec.credentials_ref.name}: describe them."
    for group in of_kind(documents, NodeGroup):
        wanted = group.spec.static_instances
        if wanted is None or wanted.label_selector is None or wanted.label_selector.match_expressions:
            continue
        labels = wanted.label_selector.match_labels
        there = sum(matches_labels(labels, instance.metadata.labels) for instance in instances)
        if (wanted.count or 0) > there:
            yield (
                f"{group.title}: staticInstances.count is {wanted.count}, and {there} StaticInstances match its "
                "selector: the group would wait for machines for ever. Add machines, or lower count."
            )


def _references(documents: Sequence[Document]) -> Iterator[str]:
    groups = {group.metadata.name for group in of_kind(documents, NodeGroup)} | {"master", "*"}
    connections = {each.metadata.name for each in of_kind(documents, CephClusterConnection)}
    logins = {each.metadata.name for each in of_kind(documents, CephClusterAuthentication)}
    for script in of_kind(documents, NodeGroupConfiguration):
        for name in sorted(set(script.spec.node_groups) - groups):
            yield f"{script.title}: there is no NodeGroup {name}: it would run nowhere."
    for local in of_kind(documents, LocalPathProvisioner):
        for name in sorted(set(local.spec.node_groups) - groups):
            yield f"{local.title}: there is no NodeGroup {name}: no volume would ever be made."
    for storage in of_kind(documents, CephStorageClass):
        # Without secrets.yml, which holds them, nothing can be said of them.
        if connections and storage.spec.cluster_connection_name not in connections:
            yield f"{storage.title}: there is no CephClusterConnection {storage.spec.cluster_connection_name}."
        if logins and storage.spec.cluster_authentication_name not in {None, *logins}:
            yield f"{storage.title}: there is no CephClusterAuthentication {storage.spec.cluster_authentication_name}."


def _single(document: Document) -> Iterator[str]:
    """Rules within one document."""
    match document:
        case SSHCredentials(spec=ssh) if not (ssh.private_ssh_key or ssh.sudo_password_encoded):
            yield f"{document.title}: privateSSHKey or sudoPasswordEncoded is needed, and neither is there."
        case CephStorageClass(spec=storage):
            right = storage.rbd if storage.type == "RBD" else storage.ceph_fs
            wrong = storage.ceph_fs if storage.type == "RBD" else storage.rbd
            if right is None or wrong is not None:
                yield f"{document.title}: type RBD needs rbd, type CephFS needs cephFS, and neither takes the other."
        case IngressNginxController(spec=controller):
            ports = controller.host_port
            if ports and _API_SERVER_PORT in (ports.http_port, ports.https_port):
                yield f"{document.title}: port {_API_SERVER_PORT} belongs to the API server: choose another."
            if controller.inlet.startswith("HostPort") and not (ports and (ports.http_port or ports.https_port)):
                yield f"{document.title}: inlet {controller.inlet} needs hostPort.httpPort or httpsPort."
        case User(spec=user) if not user.password.startswith("<") and not is_bcrypt_hash(user.password):
            yield f"{document.title}: password is no bcrypt hash: `htpasswd -nBC 10 ''` prints one after the colon."
        case _:
            return
