"""Whether our own programs and what they rely on in the API server are there."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from gpu_control_plane.api import DEFINITIONS
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.api.pod import COMPONENT_LABEL
from gpu_control_plane.doctor.check import Found, Group, check
from gpu_control_plane.doctor.findings import Evidence, Mend, MendKind, Severity, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.installation.policies import policies
from gpu_control_plane.kube import certificates
from gpu_control_plane.kube.ca_bundle import WebhookConfiguration
from gpu_control_plane.kube.crd import ESTABLISHED, CustomResourceDefinition
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.rules.access_index import INDEX_NAME, access_index, resource_of
from gpu_control_plane.rules.admission_policy import Manifest
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

LEASE: Final = "gpu-control-plane"
"""By which replicas of the controller agree on a leader."""
CONTROLLER: Final = "gpu-control-plane-controller"
HELM: Final = "app.kubernetes.io/managed-by"
INSTANCE: Final = "app.kubernetes.io/instance"

_ABSENT: Final = "absent"
_INSTALL_CRDS: Final = "python -m gpu_control_plane.installation.crds"
_EXPIRES_SOON: Final = timedelta(days=3)
_SERVICE_NAME: Final = "kubernetes.io/service-name"


def upgrade(namespace: str, ours: Iterable[Object], more: str = "") -> str:
    """The command that brings everything as the chart has it; objects of `ours` say which release that is."""
    names = (each.metadata.labels.get(INSTANCE) for each in ours)
    release = next(filter(None, names), "RELEASE")
    command = f"helm upgrade {release} CHART -n {namespace} --reset-then-reuse-values{more}"
    return f"{command}  # CHART: where the release was installed from"


def _logs(namespace: str, component: str) -> str:
    return f"kubectl -n {namespace} logs -l {COMPONENT_LABEL}={component} --prefix --tail=50"


@check("crd-missing", "A CRD of ours is missing", Group.CONTROL_PLANE, Severity.CRITICAL, Source.CRDS)
def crd_missing(snapshot: Snapshot) -> Iterator[Found]:
    there = {crd.name: crd for crd in snapshot.crds}
    needed = [definition.name for definition in DEFINITIONS] + [NodeFeature.resource.qualified_name]
    for name in needed:
        crd = there.get(name)
        served = crd.condition(ESTABLISHED) if crd is not None else None
        if crd is None:
            evidence, what = Evidence(f"CustomResourceDefinition/{name}", "metadata", _ABSENT), "is not installed"
        elif served is None or served.status != "True":
            evidence = Evidence(reference(crd), f"status.conditions[{ESTABLISHED}]", served.status if served else "")
            what = "is installed and not served"
        else:
            continue
        yield Found(about=name, sentence=f"The CRD {what}.", evidence=evidence, fix=_INSTALL_CRDS)


@check("crd-version", "A CRD is of another release", Group.CONTROL_PLANE, Severity.WARNING, Source.CRDS)
def crd_version(snapshot: Snapshot) -> Iterator[Found]:
    ours = {definition.name for definition in DEFINITIONS}
    for crd in snapshot.crds:
        version = crd.metadata.annotations.get(Annotation.CRD_VERSION, "")
        if crd.name in ours and version != snapshot.release:
            yield _other_release(crd, version, snapshot.release)


def _other_release(crd: CustomResourceDefinition, version: str, release: str) -> Found:
    whose = f"is of release {version}" if version else "is not ours, or of a release that did not say"
    return Found(
        about=crd.name,
        sentence=f"The CRD {whose}, and this program is of release {release}: fields may be missing.",
        evidence=Evidence(reference(crd), f"metadata.annotations[{Annotation.CRD_VERSION.value}]", version or _ABSENT),
        fix=_INSTALL_CRDS,
    )


@check(
    "controller-missing",
    "The controller is not installed",
    Group.CONTROL_PLANE,
    Severity.CRITICAL,
    Source.DEPLOYMENTS,
    Source.LEASES,
    settles=True,
)
def controller_missing(snapshot: Snapshot) -> Iterator[Found]:
    """A controller that runs outside the cluster, as a local one does, has no Deployment; its lease shows it."""
    deployed = any(each.name == CONTROLLER for each in snapshot.deployments)
    lease = _lease(snapshot)
    if not deployed and (lease is None or _not_led(snapshot, lease) is not None):
        yield Found(
            about=f"Deployment {CONTROLLER}",
            sentence="There is no controller: nobody answers for pools, cards and nodes.",
            evidence=Evidence(f"Deployment/{snapshot.namespace}/{CONTROLLER}", "metadata", _ABSENT),
            fix=f"helm install gpu-control-plane gpu-control-plane -n {snapshot.namespace} --create-namespace",
        )


@check(
    "controller-unavailable",
    "Replicas of the controller are missing",
    Group.CONTROL_PLANE,
    Severity.WARNING,
    Source.DEPLOYMENTS,
    settles=True,
)
def controller_unavailable(snapshot: Snapshot) -> Iterator[Found]:
    for deployment in snapshot.deployments:
        if deployment.name == CONTROLLER and deployment.missing:
            available, wanted = deployment.status.available_replicas, deployment.spec.replicas
            yield Found(
                about=f"Deployment {CONTROLLER}",
                sentence=f"{available} of {counted(wanted, 'replica')} of the controller work.",
                evidence=Evidence(reference(deployment), "status.availableReplicas", str(available)),
                fix=f"kubectl -n {snapshot.namespace} describe deployment {CONTROLLER}",
                severity=None if available else Severity.CRITICAL,
            )


@check(
    "controller-no-leader",
    "No controller leads",
    Group.CONTROL_PLANE,
    Severity.CRITICAL,
    Source.LEASES,
    settles=True,
)
def controller_no_leader(snapshot: Snapshot) -> Iterator[Found]:
    lease = _lease(snapshot)
    if lease is None:
        evidence, why = Evidence(f"Lease/{snapshot.namespace}/{LEASE}", "metadata", _ABSENT), "there is no lease"
    elif (found := _not_led(snapshot, lease)) is not None:
        evidence, why = found
    else:
        return
    yield Found(
        about=f"Lease {LEASE}",
        sentence=f"No controller leads, so nothing that changes is acted on: {why}.",
        evidence=evidence,
        fix=_logs(snapshot.namespace, "controller"),
    )


def _lease(snapshot: Snapshot) -> TimedLease | None:
    return next((lease for lease in snapshot.leases if lease.name == LEASE), None)


def _not_led(snapshot: Snapshot, lease: TimedLease) -> tuple[Evidence, str] | None:
    """Why nobody holds the lease. One that moved on between two looks is held, whatever our clock says."""
    earlier = _lease(snapshot.before) if snapshot.before is not None else None
    if not lease.holder:
        return Evidence(reference(lease), "spec.holderIdentity", ""), "nobody holds the lease"
    renewed = lease.renewed
    moved_on = earlier is not None and earlier.spec != lease.spec
    if moved_on or (renewed is not None and renewed + lease.duration > snapshot.now):
        return None
    ago = "never" if renewed is None else f"{(snapshot.now - renewed).total_seconds():.0f} s ago"
    evidence = Evidence(reference(lease), "spec.renewTime", lease.spec.renew_time or "")
    return evidence, f"{lease.holder} last renewed the lease {ago}"


@check("webhook-missing", "A webhook configuration is missing", Group.CONTROL_PLANE, Severity.WARNING, Source.WEBHOOKS)
def webhook_missing(snapshot: Snapshot) -> Iterator[Found]:
    """Without both, webhooks are switched off, which the chart allows; one alone was deleted."""
    kinds = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
    there = {each.resource.kind for each in snapshot.webhooks}
    for kind in sorted(kinds - there) if there else ():
        yield Found(
            about=f"{kind} {WEBHOOKS}",
            sentence="It is missing while its twin is there: mistakes are not refused when they are made.",
            evidence=Evidence(f"{kind}/{WEBHOOKS}", "metadata", _ABSENT),
            fix=upgrade(snapshot.namespace, snapshot.webhooks),
        )


@check(
    "webhook-untrusted",
    "The API server cannot trust our webhooks",
    Group.CONTROL_PLANE,
    Severity.WARNING,
    Source.WEBHOOKS,
    settles=True,
)
def webhook_untrusted(snapshot: Snapshot) -> Iterator[Found]:
    for configuration in snapshot.webhooks:
        for name, why in _untrusted(configuration, snapshot.now):
            yield Found(
                about=f"{configuration.resource.kind} {name}",
                sentence=f"The API server skips the webhook: {why}. The controller writes the bundle while it leads.",
                evidence=Evidence(reference(configuration), f"webhooks[{name}].clientConfig.caBundle", why),
                fix=_logs(snapshot.namespace, "controller"),
            )


def _untrusted(configuration: WebhookConfiguration, now: datetime) -> Iterator[tuple[str, str]]:
    for name, bundle in configuration.bundles:
        if not bundle:
            yield name, "it has no CA bundle"
            continue
        try:
            ends = max(certificates.read(each).expires_at for each in certificates.split_pem(bundle))
        except ValueError:
            yield name, "its CA bundle is no certificate"
            continue
        if ends < now.astimezone(UTC):
            yield name, f"its CA bundle expired on {ends:%Y-%m-%d}"
        elif ends < now + _EXPIRES_SOON:
            yield name, f"its CA bundle expires on {ends:%Y-%m-%d %H:%M} UTC and was not renewed"


@check(
    "webhook-unreachable",
    "Nothing answers behind the webhooks' Service",
    Group.CONTROL_PLANE,
    Severity.WARNING,
    Source.WEBHOOKS,
    Source.ENDPOINTS,
    settles=True,
)
def webhook_unreachable(snapshot: Snapshot) -> Iterator[Found]:
    """Only where the API server calls the Service: a controller outside the cluster is called by its address."""
    if not any(configuration.calls_a_service for configuration in snapshot.webhooks):
        return
    slices = [each for each in snapshot.endpoints if each.metadata.labels.get(_SERVICE_NAME) == WEBHOOKS]
    if not sum(each.ready for each in slices):
        shown = ", ".join(each.name for each in slices) or _ABSENT
        yield Found(
            about=f"Service {WEBHOOKS}",
            sentence="No pod answers behind the Service, so the API server skips the webhooks.",
            evidence=Evidence(f"EndpointSlice/{snapshot.namespace}/{shown}", "endpoints[].conditions.ready", "none"),
            fix=f"kubectl -n {snapshot.namespace} get endpointslices,pods -l app.kubernetes.io/name=gpu-control-plane",
        )


@check(
    "policy-missing",
    "An admission policy or its binding is missing",
    Group.CONTROL_PLANE,
    Severity.CRITICAL,
    Source.POLICIES,
    Source.BINDINGS,
)
def policy_missing(snapshot: Snapshot) -> Iterator[Found]:
    there: list[Object] = [*snapshot.policies, *snapshot.bindings]
    names = {(each.resource.kind, each.name) for each in there}
    by_chart = any(each.metadata.labels.get(HELM) == "Helm" for each in there)
    for manifest in policies(snapshot.namespace):
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if (kind, name) in names:
            continue
        only_warns = _warns_only(name, snapshot.namespace)
        yield Found(
            about=f"{kind} {name}",
            sentence=f"It is missing, so {'nobody is warned' if only_warns else 'what it refuses is let in'}.",
            evidence=Evidence(f"{kind}/{name}", "metadata", _ABSENT),
            fix=upgrade(snapshot.namespace, there) if by_chart else "kubectl gpu doctor --only policy-missing --fix",
            mend=None if by_chart else Mend(MendKind.RESTORE_POLICY, Key(name)),
            severity=Severity.WARNING if only_warns else None,
        )


@check(
    "policy-not-enforced",
    "A binding does not have its policy act",
    Group.CONTROL_PLANE,
    Severity.CRITICAL,
    Source.BINDINGS,
)
def policy_not_enforced(snapshot: Snapshot) -> Iterator[Found]:
    for binding in snapshot.bindings:
        manifest = _binding_manifest(binding.name, snapshot.namespace)
        if manifest is None:
            continue
        wanted, acts = manifest["spec"], binding.spec.validation_actions
        lacking = [action for action in wanted["validationActions"] if action not in acts]
        if lacking or binding.spec.policy_name != wanted["policyName"]:
            yield Found(
                about=f"{binding.resource.kind} {binding.name}",
                sentence=f"Its policy does not {' or '.join(lacking).lower() or 'act'}: the binding was changed.",
                evidence=Evidence(
                    reference(binding), "spec.validationActions", f"{', '.join(acts)} ({binding.spec.policy_name})"
                ),
                fix=upgrade(snapshot.namespace, snapshot.bindings),
                severity=Severity.WARNING if _warns_only(binding.name, snapshot.namespace) else None,
            )


def _binding_manifest(name: str, namespace: str) -> Manifest | None:
    return next(
        (each for each in policies(namespace) if each["kind"].endswith("Binding") and each["metadata"]["name"] == name),
        None,
    )


def _warns_only(name: str, namespace: str) -> bool:
    manifest = _binding_manifest(name, namespace)
    return manifest is not None and "Deny" not in manifest["spec"]["validationActions"]


@check(
    "access-index-missing",
    "The index of access is missing",
    Group.CONTROL_PLANE,
    Severity.CRITICAL,
    Source.INDEX,
    settles=True,
)
def access_index_missing(snapshot: Snapshot) -> Iterator[Found]:
    if not snapshot.index:
        yield Found(
            about=f"ConfigMap {INDEX_NAME}",
            sentence="The admission policies have nothing to look pools up in, so every pod may ask for every pool. "
            "A controller that leads makes it anew.",
            evidence=Evidence(f"ConfigMap/{snapshot.namespace}/{INDEX_NAME}", "metadata", _ABSENT),
            fix=_logs(snapshot.namespace, "controller"),
        )


@check(
    "access-index-stale",
    "The index of access is not as the pools say",
    Group.CONTROL_PLANE,
    Severity.CRITICAL,
    Source.INDEX,
    Source.POOLS,
    settles=True,
)
def access_index_stale(snapshot: Snapshot) -> Iterator[Found]:
    """What is in the index beyond the pools belongs to resources that nodes still offer: it admits nobody."""
    wanted = access_index(snapshot.pools).data
    for index in snapshot.index:
        for key, text in wanted.items():
            held = index.data.get(key)
            if held != text:
                yield Found(
                    about=f"ConfigMap {INDEX_NAME}",
                    sentence=f"Who may use {resource_of(key)} is not written as the pool says, so pods are admitted "
                    "by what was there before.",
                    evidence=Evidence(reference(index), f"data[{key}]", _ABSENT if held is None else repr(held)[:120]),
                    fix=_logs(snapshot.namespace, "controller"),
                )


@check(
    "program-not-running",
    "A pod of ours does not run",
    Group.CONTROL_PLANE,
    Severity.WARNING,
    Source.PODS,
    settles=True,
)
def program_not_running(snapshot: Snapshot) -> Iterator[Found]:
    """Pods of our namespace that crash, cannot pull their image or find no node. Agents have a check of their own."""
    for pod in snapshot.pods:
        if pod.component == "agent" or not pod.active or pod.ready or not pod.trouble:
            continue
        yield Found(
            about=f"pod {pod.name}",
            sentence=f"It does not run. {pod.trouble}",
            evidence=Evidence(reference(pod), "status.containerStatuses[].state", pod.trouble[:160]),
            fix=f"kubectl -n {snapshot.namespace} logs {pod.name} --all-containers --previous --tail=50",
        )
