"""Keeps a ResourceQuota in every namespace that asks for one with the label `example.com/cpus: "4"`."""

import sys
from typing import ClassVar

import msgspec

from gpu_control_plane.kube import Key, Object, Resource, Runtime, main


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class QuotaSpec(msgspec.Struct, frozen=True):
    hard: dict[str, str] = {}


class ResourceQuota(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ResourceQuota", "resourcequotas")
    spec: QuotaSpec = QuotaSpec()


class Desired(msgspec.Struct):
    """The fields of a ResourceQuota that this controller owns."""

    spec: QuotaSpec


def build(runtime: Runtime) -> None:
    namespaces, quotas = runtime.cache(Namespace), runtime.cache(ResourceQuota)
    applier = runtime.applier("namespace-quotas")

    async def reconcile(key: Key) -> None:
        namespace = namespaces.at(key)
        if namespace is None or namespace.deleting or not (cpus := namespace.metadata.labels.get("example.com/cpus")):
            return
        observed = quotas.get("team", key.name)
        desired = Desired(QuotaSpec({"requests.cpu": cpus}))
        if await applier.apply(ResourceQuota, "team", desired, observed, namespace=key.name) is not observed:
            runtime.events.normal(namespace, "QuotaSet", f"the namespace may use {cpus} CPUs")

    controller = runtime.controller("quotas", reconcile).watch(namespaces)
    controller.watch(quotas, lambda quota: [Key(quota.metadata.namespace or "")])


if __name__ == "__main__":
    sys.exit(main("namespace-quotas", build))
