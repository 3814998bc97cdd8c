"""Namespaces and ResourceQuotas as our controllers look at them."""

from typing import ClassVar

import msgspec

from gpu_control_plane.kube.objects import Object, Resource


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class QuotaSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    hard: dict[str, str] = {}


class QuotaStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    used: dict[str, str] = {}


class ResourceQuota(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ResourceQuota", "resourcequotas")

    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()
