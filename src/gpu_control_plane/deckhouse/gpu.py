"""This control plane as a module of the cluster, and pools for its cards."""

from collections.abc import Iterator

import msgspec

from gpu_control_plane.api.access import Access
from gpu_control_plane.api.allocation import MIG, Mode, PoolAllocation, TimeSlice
from gpu_control_plane.api.deviceselector import DeviceCriteria, DeviceSelector
from gpu_control_plane.api.gpupool import PoolAssignment, PoolSpec
from gpu_control_plane.api.selectors import LabelSelector, Operator, Requirement
from gpu_control_plane.deckhouse.description import ClusterDescription, GPUControlPlane, Pool
from gpu_control_plane.deckhouse.kinds import Document, Metadata
from gpu_control_plane.deckhouse.kinds.configuration import (
    ModuleConfig,
    ModuleConfigSpec,
    ModuleRegistry,
    ModuleSource,
    ModuleSourceSpec,
    ModuleUpdate,
    ModuleUpdatePolicy,
    ModuleUpdatePolicySpec,
)
from gpu_control_plane.deckhouse.kinds.pools import GPUPoolDocument
from gpu_control_plane.deckhouse.nodes import GROUP_LABEL
from gpu_control_plane.deckhouse.secrets import SecretText, docker_config, with_secrets

MODULE = "gpu-control-plane"


def gpu_control_plane(cluster: ClusterDescription, secret: SecretText) -> Iterator[Document]:
    """Where the module comes from comes first: Deckhouse ignores the settings of a module that it does not know."""
    if cluster.gpu_control_plane is None:
        return
    yield from _module(cluster.gpu_control_plane, secret)
    for pool in cluster.gpu_control_plane.pools:
        yield GPUPoolDocument(metadata=Metadata(name=pool.name), spec=_pool(pool))


def _module(ours: GPUControlPlane, secret: SecretText) -> Iterator[Document]:
    login = ours.source.docker_config
    yield ModuleSource(
        metadata=Metadata(name=MODULE),
        spec=ModuleSourceSpec(
            registry=ModuleRegistry(
                repo=ours.source.repo,
                docker_cfg=secret(login, docker_config("Docker login")) if login else None,
            )
        ),
    )
    yield ModuleUpdatePolicy(
        metadata=Metadata(name=MODULE),
        spec=ModuleUpdatePolicySpec(release_channel=ours.source.release_channel, update=ModuleUpdate(mode="Auto")),
    )
    yield ModuleConfig(
        metadata=Metadata(name=MODULE),
        spec=ModuleConfigSpec(
            enabled=True,
            version=1 if ours.settings else None,
            settings=with_secrets(ours.settings, MODULE, secret),
            source=MODULE,
            update_policy=MODULE,
        ),
    )


def _pool(pool: Pool) -> PoolSpec:
    nodes = LabelSelector(
        match_expressions=(Requirement(key=GROUP_LABEL, operator=Operator.IN, values=pool.node_groups),)
    )
    spec = PoolSpec(
        device_selector=DeviceSelector(
            node_selector=nodes, include=DeviceCriteria(products=pool.products) if pool.products else None
        ),
        assignment=PoolAssignment(require_annotation=pool.approval == "Manual"),
        access=Access(namespaces=pool.namespaces) if pool.namespaces else None,
    )
    return msgspec.structs.replace(spec, allocation=_allocation(pool)) if pool.mode != "Exclusive" else spec


def _allocation(pool: Pool) -> PoolAllocation:
    if pool.mode == "MIG":
        return PoolAllocation(mode=Mode.MIG, mig=MIG(profile=pool.mig_profile))
    return PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=pool.replicas or 2))
