"""Ceph and local disks as StorageClasses."""

from collections.abc import Iterator

from gpu_control_plane.deckhouse.description import Ceph, ClusterDescription, StorageClass
from gpu_control_plane.deckhouse.kinds import Document, Metadata
from gpu_control_plane.deckhouse.kinds.services import (
    RBD,
    CephClusterAuthentication,
    CephClusterAuthenticationSpec,
    CephClusterConnection,
    CephClusterConnectionSpec,
    CephFS,
    CephFSConnection,
    CephStorageClass,
    CephStorageClassSpec,
    LocalPathProvisioner,
    LocalPathProvisionerSpec,
)
from gpu_control_plane.deckhouse.secrets import SecretText, plain


def storage(cluster: ClusterDescription, secret: SecretText) -> Iterator[Document]:
    if cluster.storage.ceph:
        yield from _ceph(cluster.storage.ceph, secret)
    for local in cluster.storage.local:
        yield LocalPathProvisioner(
            metadata=Metadata(name=local.name),
            spec=LocalPathProvisionerSpec(
                path=local.path, node_groups=local.node_groups, reclaim_policy=local.reclaim_policy
            ),
        )


def _ceph(ceph: Ceph, secret: SecretText) -> Iterator[Document]:
    key = secret(ceph.user_key, plain("key of the Ceph user"))
    yield CephClusterConnection(
        metadata=Metadata(name=ceph.name),
        spec=CephClusterConnectionSpec(
            cluster_id=ceph.cluster_id,
            monitors=ceph.monitors,
            user_id=ceph.user_id,
            user_key=key,
            ceph_fs=CephFSConnection(subvolume_group=ceph.subvolume_group) if ceph.subvolume_group else None,
        ),
    )
    if ceph.authentication:
        yield CephClusterAuthentication(
            metadata=Metadata(name=ceph.name),
            spec=CephClusterAuthenticationSpec(user_id=ceph.user_id, user_key=key),
        )
    for each in ceph.storage_classes:
        yield CephStorageClass(metadata=Metadata(name=each.name), spec=_storage_class(ceph, each))


def _storage_class(ceph: Ceph, each: StorageClass) -> CephStorageClassSpec:
    return CephStorageClassSpec(
        cluster_connection_name=ceph.name,
        cluster_authentication_name=ceph.name if ceph.authentication else None,
        reclaim_policy=each.reclaim_policy,
        type="RBD" if each.pool else "CephFS",
        rbd=RBD(pool=each.pool, default_fs_type=each.fs_type) if each.pool else None,
        ceph_fs=CephFS(fs_name=each.file_system) if each.file_system else None,
    )
