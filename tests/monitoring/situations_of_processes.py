"""Situations of the software stack and of our own processes."""

from typing import Final

from monitoring.situations import LEADER, Fired, Situation, lasting, led, stale

_JOB: Final = 'job="gpu-control-plane-controller"'
_DAY: Final = 86400


def _upgrading(state: str) -> str:
    return led("gpu_operator_upgrade_nodes", driver="cluster-policy", state=state)


def _failed(controller: str = "inventory", more: str = "") -> str:
    return f'kube_reconciles_total{{{_JOB},controller="{controller}",result="failed"{more}}}'


def _daemonset(number: str, name: str = "gpu-control-plane-agent") -> str:
    return f'kube_daemonset_status_{number}{{namespace="d8-gpu-operator",daemonset="{name}"}}'


_MISSING_POD: Final = Fired({"namespace": "d8-gpu-operator", "daemonset": "gpu-control-plane-agent"}, "1")


_NOW: Final = (
    *lasting("GPUStackFailed", led("gpu_operator_reconciliation_status"), hold=10, fired=Fired({}), value="-1"),
    Situation(
        alert="GPUStackFailed",
        name="a former leader saw it well",
        series={
            **LEADER,
            stale("gpu_operator_reconciliation_status"): "1x20",
            led("gpu_operator_reconciliation_status"): "-1x20",
        },
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUStackFailed",
        name="not ready yet",
        series={**LEADER, led("gpu_operator_reconciliation_status"): "0x20"},
        after=20,
    ),
    *lasting(
        "GPUOperandNotReady",
        led("gpu_operator_state_ready", state="state-driver"),
        hold=15,
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
        fires=(Fired({"state": "state-driver"}),),
    ),
    *(
        Situation(
            alert="GPUOperandMissingOnManyNodes",
            name=f"{away} of {desired} nodes",
            series={
                **LEADER,
                led("gpu_operator_state_nodes", state="state-driver", what="desired"): f"{desired}x30",
                led("gpu_operator_state_nodes", state="state-driver", what="ready"): f"{desired - away}x30",
                stale("gpu_operator_state_nodes", state="state-driver", what="desired"): "100x30",
                stale("gpu_operator_state_nodes", state="state-driver", what="ready"): "100x30",
            },
            fires=(Fired({"state": "state-driver"}, shown),) if shown else (),
            after=30,
        )
        for away, desired, shown in ((3, 10, "30%"), (2, 5, "40%"), (2, 8, ""), (1, 2, ""), (0, 0, ""))
    ),
    Situation(
        alert="GPUDriverUpgradeFailed",
        name="a node failed",
        series={**LEADER, _upgrading("upgrade-failed"): "1x10"},
        fires=(Fired({"driver": "cluster-policy"}, "1"),),
    ),
    Situation(
        alert="GPUDriverUpgradeFailed",
        name="nodes wait and are upgraded, and a former leader saw one fail",
        series={
            **LEADER,
            _upgrading("upgrade-required"): "5x10",
            _upgrading("drain-required"): "1x10",
            _upgrading("upgrade-failed"): "0x10",
            stale("gpu_operator_upgrade_nodes", driver="cluster-policy", state="upgrade-failed"): "1x10",
        },
        after=10,
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="a drain that does not end",
        series={**LEADER, _upgrading("drain-required"): "1x200", _upgrading("upgrade-done"): "3x200"},
        fires=(Fired({"driver": "cluster-policy"}, "1"),),
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="the second and third node do not get done, in whatever state they are",
        series={
            **LEADER,
            _upgrading("drain-required"): "1x200",
            _upgrading("pod-restart-required"): "1x200",
            _upgrading("upgrade-done"): "0x9 1x200",
        },
        since=40,
        fires=(Fired({"driver": "cluster-policy"}, "2"),),
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="slow, but nodes get done",
        series={
            **LEADER,
            _upgrading("pod-restart-required"): "1x200",
            _upgrading("upgrade-done"): "0x9 1x109 2x100",
        },
        after=200,
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="slow, and the first node has just got done",
        series={
            **LEADER,
            _upgrading("pod-restart-required"): "1x200",
            _upgrading("upgrade-done"): "_x59 1x200",
            stale("gpu_operator_upgrade_nodes", driver="cluster-policy", state="upgrade-done"): "7x200",
        },
        after=170,
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="all is done, and a former leader saw it under way",
        series={
            **LEADER,
            _upgrading("drain-required"): "0x200",
            _upgrading("upgrade-done"): "3x200",
            stale("gpu_operator_upgrade_nodes", driver="cluster-policy", state="drain-required"): "1x200",
        },
        after=200,
    ),
    Situation(
        alert="GPUDriverUpgradeStuck",
        name="jobs may finish, others wait for their turn, one failed, one is new",
        series={
            **LEADER,
            _upgrading("wait-for-jobs-required"): "1x200",
            _upgrading("upgrade-required"): "9x200",
            _upgrading("upgrade-failed"): "1x200",
            _upgrading("unknown"): "1x200",
        },
        after=150,
    ),
    *lasting(
        "GPUNodesUnlabelled",
        led("gpu_operator_unlabelled_nodes"),
        hold=15,
        fired=Fired({}, "1"),
    ),
    *lasting(
        "GPUHostDriverProblem",
        led("gpu_operator_host_driver_problems"),
        hold=15,
        fired=Fired({}, "1"),
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
        since=1,
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUControllerDown",
        name="no process is scraped at all",
        series={'up{job="other"}': "1x20"},
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
        name="no process holds the lease",
        series={
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c1"}}': "0x20",
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c2"}}': "0x20",
            f'kube_leading{{{_JOB},lease="another",instance="c2"}}': "1x20",
            'kube_leading{job="another",lease="gpu-control-plane",instance="c3"}': "1x20",
        },
        fires=(Fired({}),),
    ),
    Situation(
        alert="GPUControllerNotLeading",
        name="another replica leads",
        series={
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c1"}}': "1x5 0x15",
            f'kube_leading{{{_JOB},lease="gpu-control-plane",instance="c2"}}': "0x6 1x13",
        },
        after=20,
    ),
    *(
        Situation(
            alert="GPUControllerReplicasMissing",
            name=name,
            series={
                f'kube_deployment_spec_replicas{{{where},deployment="gpu-control-plane-controller"}}': "2x30",
                f'kube_deployment_status_replicas_available{{{where},deployment="gpu-control-plane-controller"}}': have,
            },
            after=30,
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
            ('namespace="elsewhere"', "of another release", "0x30", ()),
        )
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="a failure every other minute",
        series={
            _failed(): " ".join(["0x10", *(f"{count}x1" for count in range(1, 30))]),
            _failed("another"): "0x10 1x60",
        },
        since=17,
        fires=(Fired({"controller": "inventory"}),),
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="another replica leads, and fails as well",
        series={
            _failed(more=',instance="c1"'): "0x10 1x1 2x1 3x1 4x1 5x1 6x60",
            _failed(more=',instance="c2"'): "0x22 1x1 2x1 3x1 4x1 5x1 6x1 7x1 8x60",
        },
        since=17,
        fires=(Fired({"controller": "inventory"}),),
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="the API server was away: a thousand failures at once, and then none",
        series={_failed(): "0x20 1000x60"},
        after=80,
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="the same, seen by two replicas that were replaced",
        series={
            _failed(more=',instance="c1"'): "500x20 400x60",
            _failed(more=',instance="c2"'): "_x20 3x60",
        },
        after=80,
    ),
    Situation(
        alert="GPUReconcilesFail",
        name="conflicts, which are no failures, and failures of other controllers",
        series={
            f'kube_reconciles_total{{{_JOB},controller="inventory",result="conflict"}}': "0+2x80",
            'kube_reconciles_total{job="another",controller="inventory",result="failed"}': "0+2x80",
        },
        after=80,
    ),
    Situation(
        alert="GPUWebhookCertificateExpires",
        name="fourteen days left, and one replica has another certificate",
        series={
            'kube_certificate_expires_timestamp_seconds{certificate="serving",instance="c1"}': (
                f"{14 * _DAY + 30 * 60}x100"
            ),
            'kube_certificate_expires_timestamp_seconds{certificate="serving",instance="c2"}': f"{90 * _DAY}x100",
        },
        since=31,
        fires=(Fired({"certificate": "serving"}),),
    ),
    Situation(
        alert="GPUWebhookCertificateExpires",
        name="renewed as it ought to be",
        series={
            'kube_certificate_expires_timestamp_seconds{certificate="serving"}': f"{29 * _DAY}x90",
            'kube_certificate_expires_timestamp_seconds{certificate="authority"}': f"{9 * _DAY}x90",
        },
        after=90,
    ),
    Situation(
        alert="GPUAgentDown",
        since=6,
        name="one of two agents",
        series={
            'up{job="gpu-control-plane-agent",instance="a1",node="w1"}': "1x5 0x20",
            'up{job="gpu-control-plane-agent",instance="a2",node="w2"}': "1x30",
        },
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
        name="one node",
        series={_daemonset("number_unavailable"): "1x30", _daemonset("updated_number_scheduled"): "9x30"},
        fires=(_MISSING_POD,),
    ),
    Situation(
        alert="GPUAgentPodsMissing",
        name="a rollout that has stopped",
        series={
            _daemonset("number_unavailable"): "1x60",
            _daemonset("updated_number_scheduled"): "0+1x20 20x40",
        },
        since=35,
        fires=(_MISSING_POD,),
    ),
    Situation(
        alert="GPUAgentPodsMissing",
        name="a rollout that gets on",
        series={
            _daemonset("number_unavailable"): "1x60",
            _daemonset("updated_number_scheduled"): "0x9 1x9 2x9 3x9 4x9 5x9",
        },
        after=60,
    ),
    Situation(
        alert="GPUAgentPodsMissing",
        name="all there, another DaemonSet is not",
        series={_daemonset("number_unavailable"): "0x30", _daemonset("number_unavailable", "other"): "2x30"},
        after=30,
    ),
    Situation(
        alert="GPUAgentPodsMissing",
        name="one of the same name in another namespace",
        series={_daemonset("number_unavailable").replace("d8-gpu-operator", "elsewhere"): "2x30"},
        after=30,
    ),
)
