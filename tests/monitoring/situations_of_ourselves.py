"""Situations of the software stack and of our own processes."""

from typing import Final

from monitoring.situations import LEADER, Fired, Situation, lasting, led, stale

_JOB: Final = 'job="gpu-control-plane-controller"'
_DAY: Final = 86400


def _upgrading(state: str) -> str:
    return led("gpu_operator_upgrade_nodes", driver="cluster-policy", state=state)


def _unavailable(daemonset: str) -> str:
    return f'kube_daemonset_status_number_unavailable{{namespace="d8-gpu-operator",daemonset="{daemonset}"}}'


_NOW: Final = (
    *lasting(
        "GPUStackFailed", led("gpu_operator_reconciliation_status"), long=15, short=5, fired=Fired({}), value="-1"
    ),
    Situation(
        alert="GPUStackFailed",
        name="a former leader saw it well",
        series={
            **LEADER,
            stale("gpu_operator_reconciliation_status"): "1x20",
            led("gpu_operator_reconciliation_status"): "-1x20",
        },
        after=15,
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUStackFailed",
        name="not ready yet",
        series={**LEADER, led("gpu_operator_reconciliation_status"): "0x20"},
        after=15,
    ),
    *lasting(
        "GPUOperandNotReady",
        led("gpu_operator_state_ready", state="state-driver"),
        long=20,
        short=10,
        fired=Fired({"state": "state-driver"}),
        value="0",
    ),
    Situation(
        alert="GPUOperandNotReady",
        name="the leader sees it ready, a former leader did not",
        series={
            **LEADER,
            stale("gpu_operator_state_ready", state="state-driver"): "0x30",
            led("gpu_operator_state_ready", state="state-driver"): "1x30",
        },
        after=20,
    ),
    Situation(
        alert="GPUOperandNotReady",
        name="a former leader saw it ready",
        series={
            **LEADER,
            stale("gpu_operator_state_ready", state="state-driver"): "1x30",
            led("gpu_operator_state_ready", state="state-driver"): "0x30",
        },
        after=20,
        fires=(Fired({"state": "state-driver"}),),
    ),
    Situation(
        alert="GPUOperandMissingOnManyNodes",
        name="half of the nodes",
        series={
            **LEADER,
            led("gpu_operator_state_nodes", state="state-driver", what="desired"): "8x30",
            led("gpu_operator_state_nodes", state="state-driver", what="ready"): "4x30",
            stale("gpu_operator_state_nodes", state="state-driver", what="desired"): "100x30",
            stale("gpu_operator_state_nodes", state="state-driver", what="ready"): "100x30",
        },
        after=20,
        fires=(Fired({"state": "state-driver"}, "50%"),),
    ),
    Situation(
        alert="GPUOperandMissingOnManyNodes",
        name="one node of eight, and a state of no node",
        series={
            **LEADER,
            led("gpu_operator_state_nodes", state="state-driver", what="desired"): "8x30",
            led("gpu_operator_state_nodes", state="state-driver", what="ready"): "7x30",
            led("gpu_operator_state_nodes", state="state-dcgm", what="desired"): "0x30",
            led("gpu_operator_state_nodes", state="state-dcgm", what="ready"): "0x30",
        },
        after=20,
    ),
    Situation(
        alert="GPUDriverUpgradeFailed",
        name="two nodes failed",
        series={**LEADER, _upgrading("upgrade-failed"): "2x10"},
        after=5,
        fires=(Fired({"driver": "cluster-policy"}, "2"),),
    ),
    Situation(
        alert="GPUDriverUpgradeFailed",
        name="nodes wait and are upgraded",
        series={**LEADER, _upgrading("upgrade-required"): "5x10", _upgrading("drain-required"): "1x10"},
        after=5,
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="a drain that does not end",
        series={**LEADER, _upgrading("drain-required"): "1x200", _upgrading("upgrade-done"): "3x200"},
        after=150,
        fires=(Fired({"driver": "cluster-policy"}, "1"),),
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="slow, but nodes get done",
        series={
            **LEADER,
            _upgrading("pod-restart-required"): "1x200",
            _upgrading("upgrade-done"): "0x9 1x109 2x100",
        },
        after=118,
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="jobs may finish, others wait for their turn",
        series={**LEADER, _upgrading("wait-for-jobs-required"): "1x200", _upgrading("upgrade-required"): "9x200"},
        after=150,
    ),
    *lasting(
        "GPUNodesUnlabelled",
        led("gpu_operator_unlabelled_nodes"),
        long=20,
        short=10,
        fired=Fired({}, "3"),
        value="3",
    ),
    *lasting(
        "GPUHostDriverProblem",
        led("gpu_operator_host_driver_problems"),
        long=20,
        short=10,
        fired=Fired({}, "2"),
        value="2",
    ),
)

_FORMER: Final = tuple(
    Situation(
        alert=alert,
        name="only a former leader saw some",
        series={**LEADER, stale(metric): "3x30", led(metric): "0x30"},
        after=20,
    )
    for alert, metric in (
        ("GPUNodesUnlabelled", "gpu_operator_unlabelled_nodes"),
        ("GPUHostDriverProblem", "gpu_operator_host_driver_problems"),
    )
)
STACK: Final = (*_NOW, *_FORMER)

PROCESSES: Final = (
    Situation(
        alert="GPUControllerDown",
        name="no replica answers",
        series={f'up{{{_JOB},instance="c1"}}': "1 0x20", f'up{{{_JOB},instance="c2"}}': "0x20"},
        after=10,
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUControllerDown",
        name="nobody is even scraped",
        series={'up{job="other"}': "1x20"},
        after=10,
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUControllerDown",
        name="one of two answers",
        series={f'up{{{_JOB},instance="c1"}}': "1x20", f'up{{{_JOB},instance="c2"}}': "0x20"},
        after=10,
    ),
    Situation(
        alert="GPUControllerNotLeading",
        name="nobody holds the lease",
        series={
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c1"}}': "0x20",
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c2"}}': "0x20",
        },
        after=10,
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUControllerNotLeading",
        name="the lease changed hands",
        series={
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c1"}}': "1x5 0x15",
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c2"}}': "0x6 1x13",
        },
        after=15,
    ),
    *(
        Situation(
            alert="GPUControllerReplicasMissing",
            name=name,
            series={
                f'kube_deployment_spec_replicas{{{where},deployment="gpu-control-plane-controller"}}': "2x30",
                f'kube_deployment_status_replicas_available{{{where},deployment="gpu-control-plane-controller"}}': have,
            },
            after=20,
            fires=fires,
        )
        for where, name, have, fires in (
            (
                'namespace="d8-gpu-operator"',
                "one of two",
                "1x30",
                (Fired({"namespace": "d8-gpu-operator", "deployment": "gpu-control-plane-controller"}, "1"),),
            ),
            ('namespace="d8-gpu-operator"', "a rollout", "1x5 2x25", ()),
            ('namespace="elsewhere"', "somebody else's", "0x30", ()),
        )
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="a failure every five minutes",
        series={
            f'kube_reconciles_total{{{_JOB},controller="inventory",result="failed"}}': (
                "0x4 1x4 2x4 3x4 4x4 5x4 6x4 7x4 8x4 9x4 10x4 11x4 12x4 13x4 14x4"
            )
        },
        after=70,
        early=28,
        fires=(Fired({"controller": "inventory"}),),
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="one failure, and conflicts that are nobody's fault",
        series={
            f'kube_reconciles_total{{{_JOB},controller="inventory",result="failed"}}': "0x20 1x60",
            f'kube_reconciles_total{{{_JOB},controller="inventory",result="conflict"}}': "0+2x80",
        },
        after=45,
    ),
    Situation(
        alert="GPUWebhookCertificateExpires",
        name="ten days left",
        series={'kube_certificate_expires_timestamp_seconds{certificate="serving"}': f"{10 * _DAY}x90"},
        after=80,
        fires=(Fired({"certificate": "serving"}),),
    ),
    Situation(
        alert="GPUWebhookCertificateExpires",
        name="renewed as it ought to be",
        series={
            'kube_certificate_expires_timestamp_seconds{certificate="serving"}': f"{29 * _DAY}x90",
            'kube_certificate_expires_timestamp_seconds{certificate="authority"}': f"{9 * _DAY}x90",
        },
        after=80,
    ),
    Situation(
        alert="GPUAgentDown",
        name="one of two agents",
        series={
            'up{job="gpu-control-plane-agent",instance="a1",node="w1"}': "1x5 0x20",
            'up{job="gpu-control-plane-agent",instance="a2",node="w2"}': "1x30",
        },
        after=20,
        early=10,
        fires=(Fired({"job": "gpu-control-plane-agent", "instance": "a1", "node": "w1"}),),
    ),
    Situation(
        alert="GPUAgentDown",
        name="an agent is replaced, and another exporter is away",
        series={
            'up{job="gpu-control-plane-agent",instance="a1",node="w1"}': "1x5 0x2 1x20",
            'up{job="dcgm-exporter",instance="d1",node="w1"}': "0x30",
        },
        after=20,
    ),
    Situation(
        alert="GPUAgentPodsMissing",
        name="two nodes",
        series={
            _unavailable("gpu-control-plane-agent"): "2x30",
        },
        after=20,
        fires=(Fired({"namespace": "d8-gpu-operator", "daemonset": "gpu-control-plane-agent"}, "2"),),
    ),
    Situation(
        alert="GPUAgentPodsMissing",
        name="all there, another DaemonSet is not",
        series={
            _unavailable("gpu-control-plane-agent"): "0x30",
            _unavailable("other"): "2x30",
        },
        after=20,
    ),
)
