"""config.yml: what dhctl needs to install the first master, and which modules run."""

from collections.abc import Iterator
from typing import Any

from gpu_control_plane.deckhouse.description import RUNTIMES, ClusterDescription, ModuleSettings
from gpu_control_plane.deckhouse.kinds import Document, Metadata
from gpu_control_plane.deckhouse.kinds.configuration import (
    ClusterConfiguration,
    InitConfiguration,
    InitDeckhouse,
    ModuleConfig,
    ModuleConfigSpec,
    StaticClusterConfiguration,
)
from gpu_control_plane.deckhouse.secrets import SecretText, licence_login, with_secrets
from gpu_control_plane.kube.written_yaml import overlaid

TOLERATED_KEYS = frozenset(
    {
        "dedicated",
        "dedicated.deckhouse.io",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "node.deckhouse.io/etcd-arbiter",
    }
)
"""Keys of taints that Deckhouse's own pods tolerate unasked."""


def images_repo(cluster: ClusterDescription) -> str:
    """Where the images of this edition are."""
    return f"{cluster.deckhouse.registry}/deckhouse/{cluster.deckhouse.edition.lower()}"


def registry_host(cluster: ClusterDescription) -> str:
    """What one logs in to: a registry's host, without the path of a mirror in it."""
    return cluster.deckhouse.registry.partition("/")[0]


def configuration(cluster: ClusterDescription, secret: SecretText) -> Iterator[Document]:
    """The documents of config.yml, in the order in which dhctl's own examples have them."""
    kubernetes = cluster.kubernetes
    yield ClusterConfiguration(
        cluster_type="Static",
        pod_subnet_cidr=str(kubernetes.pod_subnet),
        pod_subnet_node_cidr_prefix=str(kubernetes.pod_subnet_node_prefix),
        service_subnet_cidr=str(kubernetes.service_subnet),
        kubernetes_version=kubernetes.version,
        cluster_domain=kubernetes.cluster_domain,
        default_cri=RUNTIMES[kubernetes.containerd],
    )
    yield InitConfiguration(deckhouse=_registry(cluster, secret))
    yield from module_configs(cluster, secret)
    yield StaticClusterConfiguration(internal_network_cidrs=tuple(map(str, cluster.network.node_subnets)))


def module_configs(cluster: ClusterDescription, secret: SecretText) -> Iterator[ModuleConfig]:
    """A module comes after those it depends on: a refused ModuleConfig would keep dhctl from the rest of them."""
    required: dict[str, ModuleSettings] = {
        "deckhouse": ModuleSettings(
            version=1,
            settings={
                "bundle": cluster.deckhouse.bundle,
                "releaseChannel": cluster.deckhouse.release_channel,
                "logLevel": cluster.deckhouse.log_level,
            },
        ),
        "global": ModuleSettings(version=2, settings=_global_settings(cluster)),
        "cni-cilium": ModuleSettings(),
        "cert-manager": ModuleSettings(),
        "user-authn": ModuleSettings(version=2, settings=_user_authn(cluster)),
    }
    if cluster.ingress:
        required |= {"metallb": ModuleSettings(), "ingress-nginx": ModuleSettings()}
    if cluster.storage.ceph:
        required |= {"snapshot-controller": ModuleSettings(), "csi-ceph": ModuleSettings()}
    if cluster.storage.local:
        required["local-path-provisioner"] = ModuleSettings()
    for name, module in (
        required | {name: _joined(required.get(name), own) for name, own in cluster.modules.items()}
    ).items():
        # `global` is no module that could be switched on.
        enabled = None if name == "global" else module.enabled
        yield ModuleConfig(
            metadata=Metadata(name=name),
            spec=ModuleConfigSpec(
                enabled=enabled, version=module.version, settings=with_secrets(module.settings, name, secret)
            ),
        )


def custom_toleration_keys(cluster: ClusterDescription) -> list[str]:
    """Keys of taints that Deckhouse has to be told of: its webhook refuses the NodeGroup otherwise."""
    keys = {taint.key for group in cluster.node_groups for taint in group.taints}
    return sorted(keys - TOLERATED_KEYS)


def _registry(cluster: ClusterDescription, secret: SecretText) -> InitDeckhouse:
    platform = cluster.deckhouse
    if platform.license is None:
        return InitDeckhouse(images_repo=images_repo(cluster))
    form = licence_login(registry_host(cluster), platform.license_encoding)
    return InitDeckhouse(images_repo=images_repo(cluster), registry_docker_cfg=secret(platform.license, form))


def _global_settings(cluster: ClusterDescription) -> dict[str, Any]:
    modules: dict[str, Any] = {"publicDomainTemplate": cluster.network.public_domain_template}
    if cluster.ingress:
        modules["ingressClass"] = cluster.ingress[0].ingress_class
    if cluster.certificate_authority:
        issuer = cluster.certificate_authority.issuer
        modules["https"] = {"mode": "CertManager", "certManager": {"clusterIssuerName": issuer}}
    if keys := custom_toleration_keys(cluster):
        modules["placement"] = {"customTolerationKeys": keys}
    settings: dict[str, Any] = {"modules": modules}
    if cluster.storage.default_class:
        settings["defaultClusterStorageClass"] = cluster.storage.default_class
    return settings


def _user_authn(cluster: ClusterDescription) -> dict[str, Any]:
    published = cluster.access.publish_api
    if published is None:
        return {"publishAPI": {"enabled": False}}
    api: dict[str, Any] = {"enabled": True, "https": {"mode": published.https}}
    if published.ingress_class:
        api["ingressClass"] = published.ingress_class
    if published.whitelist:
        api["whitelistSourceRanges"] = [str(network) for network in published.whitelist]
    return {"publishAPI": api}


def _joined(ours: ModuleSettings | None, own: ModuleSettings) -> ModuleSettings:
    """What a person says of a module goes before what follows from the rest of the description."""
    if ours is None:
        return own
    return ModuleSettings(
        enabled=own.enabled, version=own.version or ours.version, settings=overlaid(ours.settings, own.settings)
    )
