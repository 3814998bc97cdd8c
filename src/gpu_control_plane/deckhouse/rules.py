"""What is wrong with a description that its types cannot show: names that lead nowhere, addresses used twice. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from typing import Any

import msgspec

from gpu_control_plane.deckhouse.certificates import NoCertificate, certificates_in, may_sign
from gpu_control_plane.deckhouse.description import (
    ClusterDescription,
    FileReference,
    GPUControlPlane,
    GPUNodes,
    NodeGroup,
    Pool,
    StorageClass,
    is_secret_reference,
)
from gpu_control_plane.deckhouse.gpu import MODULE
from gpu_control_plane.deckhouse.kinds.secret_settings import secret_settings
from gpu_control_plane.deckhouse.node_scripts import PACKAGE_MANAGERS, USUAL_DRIVERS
from gpu_control_plane.deckhouse.nodes import MASTER, managed_nodes, node_labels
from gpu_control_plane.rules.ray.texts import is_label_key, is_label_value

_DRIVERS_ELSEWHERE = {"debian": "nvidia-driver", "centos": "nvidia-open"}
_OF_PACKAGES = ("driver", "driver_stream", "packages", "toolkit_repository")
"""What only those who install packages on GPU nodes read."""
_MIG_PROFILE = re.compile(r"^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+.]me([.]all)?|[+.]gfx|-me)?$")


def problems(cluster: ClusterDescription, files: Mapping[FileReference, str]) -> list[str]:
    """Every problem as a sentence that begins with the place in the description."""
    return [
        *_platform(cluster),
        *_addresses(cluster),
        *_groups(cluster),
        *_storage(cluster),
        *_ingress(cluster),
        *_access(cluster),
        *_gpu_control_plane(cluster),
        *_certificates(cluster, files),
    ]


def _platform(cluster: ClusterDescription) -> Iterator[str]:
    if cluster.deckhouse.edition != "CE" and cluster.deckhouse.license is None:
        yield (
            f"deckhouse.license: edition {cluster.deckhouse.edition} needs a licence key: say where it comes from, "
            "such as env:DECKHOUSE_LICENSE_KEY."
        )
    if cluster.ssh.private_key is None and cluster.ssh.sudo_password is None:
        yield "ssh: Deckhouse needs privateKey or sudoPassword to reach the machines: add one of them."
    for where, key in (
        ("ssh.privateKey", cluster.ssh.private_key),
        ("certificateAuthority.key", cluster.certificate_authority and cluster.certificate_authority.key),
    ):
        if key and key.source == "ask":
            yield f"{where}: a key has several lines, and ask takes one: write file:PATH or env:NAME."
    masters = len(cluster.master_addresses)
    if masters % 2 == 0:
        yield f"masters.hosts: {masters} masters cannot outvote each other: use 1, 3 or 5."
    for name in cluster.modules:
        if name == MODULE:
            yield f"modules.{name}: its settings belong under gpuControlPlane.settings."
        module = cluster.modules[name]
        if not module.enabled and (why := _needed(cluster).get(name)):
            yield f"modules.{name}: {why} needs it: remove enabled: false, or that."
        yield from _secrets(module.settings, f"modules.{name}.settings")
        if module.settings and module.version is None and name not in ("global", "deckhouse", "user-authn"):
            yield f"modules.{name}.version is missing: Deckhouse takes settings only with the version of their schema."


def _secrets(settings: Mapping[str, Any], where: str) -> Iterator[str]:
    """Secrets that are written into settings of a module."""
    for path, value in secret_settings(settings):
        if not is_secret_reference(value):
            yield (
                f"{where}.{path}: this looks like a secret, which has no place in this file: write env:NAME, "
                "file:PATH, or ask to be asked for it."
            )


def _needed(cluster: ClusterDescription) -> dict[str, str]:
    """Modules, each with the part of the description that has no effect without it."""
    needed: dict[str, str] = {}
    if cluster.storage.ceph:
        needed |= dict.fromkeys(("snapshot-controller", "csi-ceph"), "storage.ceph")
    if cluster.storage.local:
        needed["local-path-provisioner"] = "storage.local"
    if cluster.ingress:
        needed |= dict.fromkeys(("metallb", "ingress-nginx"), "ingress")
    if cluster.access.users or cluster.access.publish_api:
        needed["user-authn"] = "access"
    if cluster.certificate_authority:
        needed["cert-manager"] = "certificateAuthority"
    return needed


def _access(cluster: ClusterDescription) -> Iterator[str]:
    for field in ("name", "email"):
        for value, number in Counter(getattr(each, field) for each in cluster.access.users).items():
            if number > 1:
                yield f"access.users: {number} users have the {field} {value}: keep one, or change it."


def _addresses(cluster: ClusterDescription) -> Iterator[str]:
    places: dict[IPv4Address, list[str]] = {}
    for address in cluster.master_addresses:
        places.setdefault(address, []).append("masters")
    for group in cluster.node_groups:
        for address in group.addresses:
            places.setdefault(address, []).append(f"nodeGroups {group.name}")
    for address, users in places.items():
        if len(users) > 1:
            yield f"{users[-1]}: {address} is given twice ({', '.join(users)}): a machine can be one node only."
        if not any(address in network for network in cluster.network.node_subnets):
            yield (f"{users[0]}: {address} is in none of network.nodeSubnets: add its network there, or correct it.")
    nodes, kubernetes = len(places), cluster.kubernetes
    if kubernetes.pod_subnet_node_prefix < kubernetes.pod_subnet.prefixlen:
        yield (
            f"kubernetes.podSubnetNodePrefix: a node's /{kubernetes.pod_subnet_node_prefix} is larger than the whole "
            f"{kubernetes.pod_subnet}: use a longer prefix."
        )
    elif nodes > 2 ** (kubernetes.pod_subnet_node_prefix - kubernetes.pod_subnet.prefixlen):
        yield (
            f"kubernetes.podSubnet: {kubernetes.pod_subnet} has no /{kubernetes.pod_subnet_node_prefix} for each of "
            f"{nodes} nodes: use a larger network, or a longer podSubnetNodePrefix."
        )


def _groups(cluster: ClusterDescription) -> Iterator[str]:
    names = Counter(group.name for group in cluster.node_groups)
    for name, number in names.items():
        if number > 1:
            yield f"nodeGroups: {name} is described {number} times: join them, or rename one."
        if name == MASTER:
            yield f"nodeGroups: {MASTER} is the group of the masters: list its machines under masters.hosts."
    for group in cluster.node_groups:
        yield from _labels(group)
        if group.gpu:
            yield from _gpu(cluster, group, group.gpu, f"nodeGroups {group.name}: gpu")


def _labels(group: NodeGroup) -> Iterator[str]:
    """What the API server would refuse, and with it the group."""
    for key, value in group.labels.items():
        if not is_label_key(key):
            yield f"nodeGroups {group.name}: labels: {key!r} is no name of a label: write one such as workload."
        if not is_label_value(value):
            yield (
                f"nodeGroups {group.name}: labels {key}: {value!r} is no value of a label: letters, digits, dashes, "
                "underscores and dots, at most 63."
            )
    for taint in group.taints:
        if taint.value and not is_label_value(taint.value):
            yield (
                f"nodeGroups {group.name}: taint {taint.key}: {taint.value!r} is no value of a taint: letters, digits, "
                "dashes, underscores and dots, at most 63."
            )


def _gpu(cluster: ClusterDescription, group: NodeGroup, gpu: GPUNodes, where: str) -> Iterator[str]:
    if gpu.setup in ("Scripts", "Native") and group.bundle not in PACKAGE_MANAGERS:
        yield (
            f"{where}.setup: NVIDIA has no packages for {group.bundle}: install the driver yourself and write "
            f"setup: None, or use {', '.join(PACKAGE_MANAGERS)}."
        )
    elif gpu.setup in ("Scripts", "Native") and gpu.driver is None and group.bundle not in USUAL_DRIVERS:
        yield (
            f"{where}.driver is missing: name the package that has the driver on {group.bundle}, such as "
            f"{_DRIVERS_ELSEWHERE[group.bundle]}."
        )
    if gpu.setup == "Native" and cluster.deckhouse.edition != "EE":
        yield f"{where}.setup: Native needs edition EE, and this is {cluster.deckhouse.edition}: use Scripts."
    yield from _without_effect(gpu, where)
    if gpu.driver_stream and PACKAGE_MANAGERS.get(group.bundle) == "apt":
        yield f"{where}.driverStream: packages of {group.bundle} are in no streams: remove it."
    native = gpu.native
    if native is None:
        return
    if gpu.setup != "Native":
        yield f"{where}.native has an effect with setup: Native only: remove it, or change setup."
    if (native.partition_count is not None) != (native.sharing == "TimeSlicing"):
        yield f"{where}.native: partitionCount belongs to sharing: TimeSlicing, and that needs it."
    if native.sharing != "MIG" and (native.parted_config or native.custom_configs):
        yield f"{where}.native: partedConfig and customConfigs belong to sharing: MIG."


def _without_effect(gpu: GPUNodes, where: str) -> Iterator[str]:
    """What is left out because nobody is there to carry it out."""
    ours = {"Scripts": (), "Native": ("default_runtime",), "None": ("default_runtime", *_OF_PACKAGES)}[gpu.setup]
    for field in msgspec.structs.fields(GPUNodes):
        if field.name in ours and getattr(gpu, field.name) != field.default:
            yield (
                f"{where}.{field.encode_name} has an effect with our scripts only, and this is setup: {gpu.setup}: "
                "remove it, or change setup."
            )


def _storage(cluster: ClusterDescription) -> Iterator[str]:
    groups = {group.name for group in cluster.node_groups} | {MASTER}
    storage = cluster.storage
    for local in storage.local:
        for name in set(local.node_groups) - groups:
            yield f"storage.local {local.name}: there is no node group {name}: describe it under nodeGroups."
    classes = [*(storage.ceph.storage_classes if storage.ceph else ())]
    for each in classes:
        yield from _ceph_class(each)
    names = Counter([each.name for each in classes] + [local.name for local in storage.local])
    for name, number in names.items():
        if number > 1:
            yield f"storage: {number} storage classes are called {name}: rename one."
    if storage.default_class and storage.default_class not in names:
        yield f"storage.defaultClass: there is no class {storage.default_class}: use {', '.join(names) or 'none'}."


def _ceph_class(each: StorageClass) -> Iterator[str]:
    if (each.pool is None) == (each.file_system is None):
        yield f"storage.ceph.storageClasses {each.name}: give either pool (RBD) or fileSystem (CephFS)."


def _ingress(cluster: ClusterDescription) -> Iterator[str]:
    groups = {group.name for group in cluster.node_groups} | {MASTER}
    for title, values in (("name", "name"), ("class", "ingress_class")):
        for value, number in Counter(getattr(each, values) for each in cluster.ingress).items():
            if number > 1:
                yield f"ingress: {number} controllers have the {title} {value}: change one."
    for each in cluster.ingress:
        if each.node_group and each.node_group not in groups:
            yield f"ingress {each.name}: there is no node group {each.node_group}: describe it under nodeGroups."
    yield from _announced(cluster)
    published = cluster.access.publish_api
    if published and not cluster.ingress:
        yield "access.publishAPI: the API is published by an ingress controller: describe one under ingress."
    elif published and published.ingress_class not in {None, *(each.ingress_class for each in cluster.ingress)}:
        yield f"access.publishAPI: no ingress has the class {published.ingress_class}: use one of those described."


def _announced(cluster: ClusterDescription) -> Iterator[str]:
    """Addresses that MetalLB announces belong to nobody else."""
    machines = {*cluster.master_addresses, *(each for group in cluster.node_groups for each in group.addresses)}
    spans = [(each.name, span) for each in cluster.ingress for span in each.addresses]
    taken = {"podSubnet": cluster.kubernetes.pod_subnet, "serviceSubnet": cluster.kubernetes.service_subnet}
    for number, (name, span) in enumerate(spans):
        for field, network in taken.items():
            if span.first <= network.broadcast_address and network.network_address <= span.last:
                yield f"ingress {name}: {span} lies in kubernetes.{field} {network}: choose free addresses."
        for used in sorted(machines & set(span.addresses)):
            yield f"ingress {name}: {used} is the address of a machine: choose free addresses."
        for other, earlier in spans[:number]:
            if span.overlaps(earlier):
                yield f"ingress {name}: {span} overlaps {earlier} of {other}: an address can be announced once only."


def _gpu_control_plane(cluster: ClusterDescription) -> Iterator[str]:
    ours = cluster.gpu_control_plane
    if ours is None:
        return
    yield from _secrets(ours.settings, "gpuControlPlane.settings")
    for name, number in Counter(pool.name for pool in ours.pools).items():
        if number > 1:
            yield f"gpuControlPlane.pools: {number} pools are called {name}: rename one."
    for pool in ours.pools:
        yield from _pool(cluster, ours, pool, f"gpuControlPlane.pools {pool.name}")


def _pool(cluster: ClusterDescription, ours: GPUControlPlane, pool: Pool, where: str) -> Iterator[str]:
    groups = {group.name: group for group in cluster.node_groups}
    managed = managed_nodes(ours)
    for name in pool.node_groups:
        group = groups.get(name)
        if group is None:
            yield f"{where}: there is no node group {name}: describe it under nodeGroups."
        elif group.gpu is None:
            yield f"{where}: node group {name} has no gpu: add it, or take another group."
        elif group.gpu.setup == "Native":
            yield (
                f"{where}: the cards of {name} are handed out by Deckhouse (setup: Native), and a pool would hand them "
                "out a second time: use setup: Scripts, or leave the group out."
            )
        elif not managed.include(labels := node_labels(cluster, group)):
            yield (
                f"{where}: nobody looks after the cards of {name}, since its label {managed.label} is "
                f"{labels[managed.label]!r}: remove the label, or leave the group out."
            )
    if (pool.mode == "MIG") != (pool.mig_profile is not None):
        yield f"{where}: mode MIG needs migProfile, and no other mode may have it."
    if pool.mig_profile and not _MIG_PROFILE.match(pool.mig_profile):
        yield f"{where}: {pool.mig_profile} is no MIG profile: write it as the driver lists it, such as 1g.10gb."
    if (pool.mode == "TimeSlice") != (pool.replicas is not None):
        yield f"{where}: mode TimeSlice needs replicas, and no other mode may have them."


def _certificates(cluster: ClusterDescription, files: Mapping[FileReference, str]) -> Iterator[str]:
    for where, reference in cluster.certificates:
        text = files.get(reference)
        if text is None:
            yield f"{where}: {reference.path} cannot be read: put the certificate there, or leave this part out."
            continue
        if "PRIVATE KEY" in text:
            yield f"{where}: {reference.path} holds a private key, which is a secret: give the certificate alone."
            continue
        try:
            found = certificates_in(text)
        except NoCertificate:
            yield f"{where}: {reference.path} is no certificate in PEM (-----BEGIN CERTIFICATE-----)."
            continue
        if where == "certificateAuthority.certificate" and not may_sign(found[0]):
            yield (
                f"{where}: {reference.path} is no authority (CA:TRUE is missing), and nobody would believe what it "
                "signs: give the certificate of one."
            )
