"""Argo CD Applications for the stack, Node Feature Discovery, KubeRay and pools, and the one that holds them.

Everything is applied by the API server (`ServerSideApply`): Argo CD then owns the fields that are in git and no others,
and neither defaults nor what our controllers write into the chart's objects count as a difference. The CRDs come first
because the chart's own job brings them, before anything else is synced, and never an older one over a newer one.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE, __version__

type Manifest = dict[str, Any]

STACK: Final = "gpu-control-plane"
NFD: Final = "node-feature-discovery"
POOLS: Final = "gpu-pools"
RAY: Final = "kuberay-operator"
ROOT: Final = "gpu"
NFD_VERSION: Final = "0.19.0"
KUBERAY_VERSION: Final = "1.7.0"
_CASCADE: Final = "resources-finalizer.argocd.argoproj.io"
_OWN_NAMESPACE: Final = ("CreateNamespace=true",)
_PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}


class Wave(IntEnum):
    """What waits for what. Argo CD waits for an Application only where its health is switched on (docs/gitops.md), so
    each also succeeds by trying again."""

    HARDWARE_LABELS = 0
    STACK = 1
    USERS = 2


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where things come from."""

    registry: str
    """With the image `gpu-control-plane` and the chart `charts/gpu-control-plane`, as `make release` pushes them."""
    repository: str
    """The git repository that holds the rendering."""
    path: str
    """The folder of the rendering in it."""
    revision: str = "HEAD"
    version: str = __version__
    namespace: str = DEFAULT_NAMESPACE
    project: str = "default"
    argocd_namespace: str = "argocd"


def stack_application(source: Source, values: Mapping[str, Any]) -> Manifest:
    """Our chart. Its release is called as the Application: Argo CD may write that name into a label of the chart's."""
    return _application(
        source,
        STACK,
        Wave.STACK,
        namespace=source.namespace,
        origin=_chart(f"{source.registry}/charts", STACK, source.version, values),
        labels=_PRIVILEGED,
        extra={"ignoreDifferences": written_by_controllers()},
        options=_OWN_NAMESPACE,
    )


def nfd_application(source: Source, values: Mapping[str, Any]) -> Manifest:
    return _application(
        source,
        NFD,
        Wave.HARDWARE_LABELS,
        namespace=NFD,
        origin=_chart("registry.k8s.io/nfd/charts", NFD, NFD_VERSION, values),
        labels=_PRIVILEGED,
        options=_OWN_NAMESPACE,
    )


def kuberay_application(source: Source, values: Mapping[str, Any]) -> Manifest:
    """Upstream's own chart, where its operator is kept. Its CRDs are too large for the annotation of a client-side
    apply."""
    repository = "https://ray-project.github.io/kuberay-helm/"
    origin = _chart(repository, RAY, KUBERAY_VERSION, values)
    return _application(source, RAY, Wave.USERS, namespace=RAY, origin=origin, options=_OWN_NAMESPACE)


def pools_application(source: Source) -> Manifest:
    """GPUPools in a folder of the repository. Their CRD is not there when Argo CD first looks. Nothing prunes a pool by
    itself: its pods would lose the way to their cards."""
    origin = {
        "repoURL": source.repository,
        "targetRevision": source.revision,
        "path": f"{source.path}/pools",
        "directory": {"recurse": True},
    }
    made = _application(
        source,
        POOLS,
        Wave.USERS,
        namespace=source.namespace,
        origin=origin,
        options=("SkipDryRunOnMissingResource=true",),
        prune=False,
    )
    made["metadata"].pop("finalizers")
    return made


def root_application(source: Source) -> Manifest:
    """The Application of the Applications. Argo CD itself adds finalizers to those with jobs for their deletion, which
    must not count as a difference."""
    origin = {"repoURL": source.repository, "targetRevision": source.revision, "path": f"{source.path}/applications"}
    finalizers = {"group": "argoproj.io", "kind": "Application", "jsonPointers": ["/metadata/finalizers"]}
    return _application(
        source,
        ROOT,
        None,
        namespace=source.argocd_namespace,
        origin=origin,
        extra={"ignoreDifferences": [finalizers]},
    )


def written_by_controllers() -> list[Manifest]:
    """What our controllers write into objects of the chart. None of it is in the chart, so a server-side apply leaves
    it alone anyway; an Argo CD that is told to compare or apply in another way has to be told this, too."""
    webhooks = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
    return [
        *(
            {
                "group": "admissionregistration.k8s.io",
                "kind": kind,
                "name": "gpu-control-plane-webhook",
                "jqPathExpressions": [".webhooks[].clientConfig.caBundle"],
            }
            for kind in webhooks
        ),
        {"group": "", "kind": "Secret", "name": "gpu-control-plane-webhook", "jsonPointers": ["/data"]},
        {"group": "", "kind": "ConfigMap", "name": "gpu-pool-access", "jsonPointers": ["/data"]},
        {"group": "coordination.k8s.io", "kind": "Lease", "name": "gpu-control-plane", "jsonPointers": ["/spec"]},
    ]


def _chart(repository: str, name: str, version: str, values: Mapping[str, Any]) -> Manifest:
    origin: Manifest = {"repoURL": repository, "chart": name, "targetRevision": version}
    if values:
        origin["helm"] = {"valuesObject": dict(values)}
    return origin


def _application(
    source: Source,
    name: str,
    wave: Wave | None,
    *,
    namespace: str,
    origin: Manifest,
    labels: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    prune: bool = True,
) -> Manifest:
    annotations = {} if wave is None else {"annotations": {"argocd.argoproj.io/sync-wave": str(wave.value)}}
    managed = {"managedNamespaceMetadata": {"labels": dict(labels)}} if labels else {}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": source.argocd_namespace, **annotations, "finalizers": [_CASCADE]},
        "spec": {
            "project": source.project,
            "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
            "source": origin,
            "syncPolicy": {
                "automated": {"prune": prune, "selfHeal": True},
                "syncOptions": ["ServerSideApply=true", *options],
                **managed,
                "retry": {"limit": 10, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "5m"}},
            },
            **(extra or {}),
        },
    }
