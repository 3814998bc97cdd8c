"""Our own processes. Who is not there writes no Events: the leader tells of agents and of other replicas, and the next
leader of a time without one."""

from typing import Final

from monitoring.alert import Alert, Group, LogLine, Severity
from monitoring.promql import AGENT, CONTROLLER, LEASE, NAMESPACE

from gpu_control_plane.api.names import Reason
from gpu_control_plane.kube.process_events import ProcessEvent

_IN: Final = f'namespace="{NAMESPACE}"'
_LOGS: Final = f"kubectl -n {NAMESPACE} logs -l app.kubernetes.io/component=controller --prefix --tail=-1"
"""Of every replica: any of them may lead."""

PROCESSES: Final = Group(
    "processes",
    (
        Alert(
            name="GPUControllerDown",
            expr=f'absent(up{{job="{CONTROLLER}"}} == 1)',
            hold="5m",
            severity=Severity.CRITICAL,
            summary="No controller of the GPU control plane answers.",
            description="Pods that run keep their cards, and nodes offer what they were told to; but no card joins or "
            f"leaves a pool, and no fault is noticed beyond its node. kubectl -n {NAMESPACE} get pods",
            events=(ProcessEvent.LEADER_ABSENT,),
            told_afterwards="by the next leader: while nobody is there, only the kubelet's own Events tell",
        ),
        Alert(
            name="GPUControllerNotLeading",
            expr=f'max(kube_leading{{job="{CONTROLLER}", lease="{LEASE}"}}) == 0',
            hold="5m",
            severity=Severity.CRITICAL,
            summary="Controllers of the GPU control plane run, and none leads.",
            description="No replica holds the lease, so nothing is written. Either the API server does not take the "
            f"lease or a right is missing: kubectl -n {NAMESPACE} get lease {LEASE} -o yaml",
            events=(ProcessEvent.LEASE_NOT_TAKEN, ProcessEvent.LEADER_ABSENT),
            log=LogLine("kube.leader", "cannot take the lease"),
        ),
        Alert(
            name="GPUControllerReplicasMissing",
            expr=f'kube_deployment_status_replicas_available{{{_IN}, deployment="{CONTROLLER}"}} '
            f'< kube_deployment_spec_replicas{{{_IN}, deployment="{CONTROLLER}"}}',
            hold="15m",
            severity=Severity.WARNING,
            summary="Only {{ $value }} replicas of the GPU control plane are available.",
            description="The next failure may leave nobody to lead. "
            f"kubectl -n {NAMESPACE} describe deployment {CONTROLLER}",
            events=(ProcessEvent.REPLICAS_MISSING,),
        ),
        Alert(
            name="GPUReconcilesFail",
            # What keeps failing is tried every minute. A hitch of the API server is behind us when the window ends.
            expr="sum by (controller) "
            f'(increase(kube_reconciles_total{{job="{CONTROLLER}", result="failed"}}[10m])) > 3',
            hold="15m",
            severity=Severity.WARNING,
            summary="The controller {{ $labels.controller }} keeps failing.",
            description="{{ $labels.controller }} tries again and again what does not work. Its log says what and why: "
            f"{_LOGS} | grep 'reconcile failed'",
            events=(ProcessEvent.RECONCILE_FAILED,),
            log=LogLine("kube.controller", "reconcile failed"),
        ),
        Alert(
            name="GPUWebhookCertificateExpires",
            expr='min by (certificate) (kube_certificate_expires_timestamp_seconds{certificate="serving"}) '
            "- time() < 14 * 86400",
            hold="1h",
            severity=Severity.WARNING,
            summary="The certificate of the webhooks is not renewed.",
            description="It ought to be renewed 30 days before it expires, and has less than 14 left. When it expires, "
            "mistakes in GPUPools are told later, by their conditions. The log says what is in the way: "
            f"{_LOGS} | grep certificates",
            events=(ProcessEvent.CERTIFICATES_NOT_SYNCHRONISED,),
            log=LogLine("kube.certificate_secret", "certificates not synchronised"),
        ),
        Alert(
            name="GPUAgentDown",
            expr=f'up{{job="{AGENT}"}} == 0',
            hold="10m",
            severity=Severity.WARNING,
            summary="The agent on {{ $labels.node }} does not answer.",
            description="Pods on {{ $labels.node }} keep their cards, and no new pod is given one there. "
            f"kubectl -n {NAMESPACE} get pods -o wide --field-selector spec.nodeName={{{{ $labels.node }}}}",
            events=(Reason.AGENT_NOT_READY,),
        ),
        Alert(
            name="GPUAgentPodsMissing",
            # While a rollout gets on, pods are away one after the other.
            expr=f'kube_daemonset_status_number_unavailable{{{_IN}, daemonset="{AGENT}"}} > 0 '
            "unless on (namespace, daemonset) "
            f'changes(kube_daemonset_status_updated_number_scheduled{{{_IN}, daemonset="{AGENT}"}}[15m]) > 0',
            hold="15m",
            severity=Severity.WARNING,
            summary="{{ $value }} GPU nodes have no working agent.",
            description="Prometheus cannot ask an agent that was never started, so this comes from Kubernetes. "
            f"kubectl -n {NAMESPACE} get pods -o wide -l app.kubernetes.io/component=agent",
            events=(Reason.AGENT_NOT_READY,),
        ),
    ),
)
