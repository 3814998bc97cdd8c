"""What a take-over from KubeRay would lead to, by our own decisions on what there is."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gpu_control_plane.actions.ray_migration.installation import (
    KUBERAY,
    OurRelease,
    RayInstallation,
    RaySettings,
    kuberay_settings,
    our_release,
)
from gpu_control_plane.actions.ray_migration.plan import RayMigrationPlan, plan_ray_migration
from gpu_control_plane.actions.ray_migration.verify import compare
from gpu_control_plane.api.ray.cronjob import RayCronJob
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.migration.deployment import Deployment
from gpu_control_plane.ray.owned import RayPod
from unit.ray.waiting.builders import NAMESPACE, NOON, cluster, job, service, worker

RELEASE = OurRelease()


def deployment(*args: str, namespace: str = "kuberay-operator", env: dict[str, str] | None = None) -> Deployment:
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    container = {"args": list(args), "env": variables}
    body = {
        "metadata": {"name": "kuberay-operator", "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    return msgspec.convert(body, Deployment)


def planned(*deployments: Deployment, release: OurRelease | None = RELEASE, **objects: Any) -> RayMigrationPlan:
    return plan_ray_migration(RayInstallation(deployments=deployments, release=release, now=NOON, **objects))


def head(of: str = "eval") -> RayPod:
    return worker(of=of, group="headgroup", node_type="head", node="node-a")


def test_what_runs_goes_on() -> None:
    running = job(spec={"rayClusterSpec": msgspec.to_builtins(cluster().spec)}, rayClusterName="eval")
    made = planned(deployment(), clusters=(cluster(),), pods=(head(),), jobs=(running,), services=(service(),))
    assert made.problems == ()
    assert [(each.kind, each.pods, each.outcome) for each in made.objects] == [
        ("RayCluster", 1, "it goes on as it is"),
        ("RayJob", 0, "it goes on as it is"),
        ("RayService", 0, "it goes on as it is; its clusters are noted to be of this operator"),
    ]


def test_a_job_that_would_not_go_on_is_in_the_way() -> None:
    made = planned(deployment(), jobs=(job(),))
    assert made.problems == (
        (
            f"RayJob {NAMESPACE}/train: it would not go on: spec.rayClusterSpec: no cluster is given: "
            "describe one here, or name one in clusterSelector."
        ),
    )


def test_pods_of_a_group_that_is_gone_are_named_before_they_would_be_deleted() -> None:
    """KubeRay's operator leaves them alone for ever."""
    made = planned(deployment(), clusters=(cluster(),), pods=(head(), worker(node="node-a")))
    (change,) = made.objects
    assert change.harmful
    assert made.problems == (
        f"RayCluster {NAMESPACE}/eval: 1 pod would be deleted: its group is not in the spec any more.",
    )


def test_pods_that_only_look_like_its_own_do_not_count() -> None:
    made = planned(deployment(), clusters=(cluster(),), pods=(head("other"),))
    assert made.objects[0].pods == 0


def test_a_job_that_has_ended_stays_as_it_is() -> None:
    made = planned(deployment(), jobs=(job(jobDeploymentStatus="Complete"),))
    assert made.objects[0].outcome == "it has ended"


def test_what_is_multikueues_is_left_alone() -> None:
    multikueue = {"managedBy": "kueue.x-k8s.io/multikueue"}
    made = planned(deployment(), jobs=(job(spec=multikueue),), services=(service(spec=multikueue),))
    assert {each.outcome for each in made.objects} == {"it is MultiKueue's, and is left alone"}


@pytest.mark.parametrize(
    ("theirs", "release", "problem"),
    [
        (deployment(), OurRelease(ray=False), "ray.enabled=false"),
        (deployment(namespace="default"), RELEASE, r"ray.kuberayNamespaces={default}"),
        (
            deployment("--watch-namespace=other"),
            RELEASE,
            f"does not look after {NAMESPACE}, and this one would begin to",
        ),
        (
            deployment("--watch-namespace", "other,another", "--log-stdout-encoder", "json"),
            RELEASE,
            f"does not look after {NAMESPACE}, and this one would begin to",
        ),
        (
            deployment(),
            OurRelease(settings=RaySettings(watch_namespaces=frozenset({"other"}))),
            f"Nobody would look after Ray in {NAMESPACE}",
        ),
    ],
    ids=["off", "not believed", "would begin", "would begin, as its chart writes it", "left alone"],
)
def test_what_would_do_harm_is_said(theirs: Deployment, release: OurRelease, problem: str) -> None:
    made = planned(theirs, release=release, clusters=(cluster(),), pods=(head(),))
    assert len(made.problems) == 1
    assert problem in made.problems[0]


def test_kuberay_may_be_believed_where_the_settings_name_it() -> None:
    release = OurRelease(trusted=KUBERAY.trusted("d8-gpu-operator", {"default"}))
    assert planned(deployment(namespace="default"), release=release).problems == ()


def test_settings_that_differ_are_to_be_made_alike_first() -> None:
    theirs = deployment(
        "--batch-scheduler=volcano",
        "--use-kubernetes-proxy=true",
        env={"ENABLE_PROBES_INJECTION": "false", "ENABLE_LOGIN_SHELL": "False"},
    )
    assert planned(theirs).todo == (
        "Set ray.batchScheduler.name=volcano: KubeRay's operator has it so.",
        "Set ray.useKubernetesProxy=true: KubeRay's operator has it so.",
        'Set ray.env.ENABLE_PROBES_INJECTION="false": KubeRay\'s operator has it so.',
    )
    alike = RaySettings(
        batch_scheduler="volcano", use_kubernetes_proxy=True, switches={"ENABLE_PROBES_INJECTION": "false"}
    )
    assert planned(theirs, release=OurRelease(settings=alike)).todo == ()


def test_another_domain_of_services_is_in_the_way() -> None:
    """New workers would not reach their heads, and the dashboards of running RayJobs would not be found."""
    theirs = deployment(env={"CLUSTER_DOMAIN": "corp.example"})
    made = planned(theirs)
    assert [each.endswith("Set ray.env.CLUSTER_DOMAIN=corp.example (helm upgrade).") for each in made.problems] == [
        True
    ]
    alike = OurRelease(settings=RaySettings(cluster_domain="corp.example"))
    assert planned(theirs, release=alike).problems == ()
    assert "corp.example" in planned(deployment(), release=alike).problems[0]
    assert planned(deployment(env={"CLUSTER_DOMAIN": "cluster.local."})).problems == ()


def test_waiting_times_that_differ_are_to_be_made_alike_first() -> None:
    theirs = deployment(
        env={
            "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS": "90",
            "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS": "300",
        }
    )
    assert planned(theirs).todo == ("Set controller.timings.ray.jobEndGrace=1m30s: KubeRay's operator has it so.",)
    alike = RaySettings(waits={"jobEndGrace": timedelta(seconds=90)})
    assert planned(theirs, release=OurRelease(settings=alike)).todo == ()
    assert planned(deployment(env={"RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS": "5m"})).todo == (), (
        "KubeRay takes its default"
    )


def test_our_own_settings_are_read_from_our_deployment() -> None:
    ours = deployment(
        "--timing=pools.statusInterval=2s",
        "--timing=ray.jobEndGrace=2m",
        "--timing=ray.nodeLost=1m",
        env={"CLUSTER_DOMAIN": "corp.example", "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS": "90"},
    )
    assert our_release(ours, "d8-gpu-operator").settings == RaySettings(
        cluster_domain="corp.example",
        waits={"jobEndGrace": timedelta(minutes=2), "jobStatusCheckTimeout": timedelta(seconds=90)},
    )


@pytest.mark.parametrize("given", ["--enable-batch-scheduler", "--enable-batch-scheduler=true"])
def test_the_old_switch_of_kuberay_means_volcano(given: str) -> None:
    assert kuberay_settings(deployment(given, "--watch-namespace", "a")).batch_scheduler == "volcano"


def test_flags_that_are_given_as_two_words_or_off_are_read() -> None:
    read = kuberay_settings(
        deployment("--watch-namespace", "a,b", "--use-kubernetes-proxy=false", "--enable-batch-scheduler=false")
    )
    assert read == RaySettings(watch_namespaces=frozenset({"a", "b"}))


def test_a_kuberay_without_a_lease_is_told_of() -> None:
    """Its chart can switch leader election off; nothing then keeps the two apart."""
    theirs = deployment("--enable-leader-election=false")
    assert ["holds no Lease" in each for each in planned(theirs).todo] == [True]
    by_file = deployment("--config=/etc/kuberay/config.yaml")
    made = planned(by_file, configurations={by_file.key: {"enableLeaderElection": False}})
    assert ["holds no Lease" in each for each in made.todo] == [True]
    assert planned(deployment("--enable-leader-election=true")).todo == ()


def test_a_configuration_file_takes_the_place_of_flags() -> None:
    theirs = deployment("--config", "/etc/kuberay/config.yaml", "--feature-gates=RayCronJob=true")
    file = {
        "watchNamespace": "other",
        "batchScheduler": "yunikorn",
        "useKubernetesProxy": True,
        "deleteRayJobAfterJobFinishes": True,
        "defaultContainerEnvs": [{"name": "A", "value": "b"}],
    }
    made = planned(theirs, configurations={theirs.key: file}, clusters=(cluster(),), pods=(head(),))
    assert [NAMESPACE in each for each in made.problems] == [True]
    assert made.todo == (
        "Set ray.batchScheduler.name=yunikorn: KubeRay's operator has it so.",
        "Set ray.useKubernetesProxy=true: KubeRay's operator has it so.",
        "Set ray.configuration: KubeRay's operator gives every pod of Ray more than its template says.",
        'Set ray.env.DELETE_RAYJOB_CR_AFTER_JOB_FINISHES="true": KubeRay\'s operator has it so.',
    )


def test_a_configuration_file_that_cannot_be_read_is_in_the_way() -> None:
    theirs = deployment("--config=/etc/kuberay/config.yaml")
    made = planned(theirs, configurations={theirs.key: None})
    assert "has a configuration file that is in no ConfigMap" in made.problems[0]
    assert made.todo == ()


def cron_job(**spec: Any) -> RayCronJob:
    template = {"entrypoint": "true", "rayClusterSpec": msgspec.to_builtins(cluster().spec)}
    metadata = {
        "name": "nightly",
        "namespace": NAMESPACE,
        "uid": "uid-nightly",
    }
    metadata["creationTimestamp"] = (NOON - timedelta(days=30)).isoformat()
    return msgspec.convert(
        {"metadata": metadata, "spec": {"schedule": "0 2 * * *", "jobTemplate": template, **spec}}, RayCronJob
    )


def test_what_the_clock_has_missed_is_said() -> None:
    """KubeRay looks after RayCronJobs behind a gate that is off: those that are there have never run."""
    made = planned(deployment(), cron_jobs=(cron_job(),))
    assert [each.outcome for each in made.objects] == [
        "a RayJob would be made at once, for 2026-03-02 02:00 UTC, which was missed"
    ]
    held = planned(deployment(), cron_jobs=(cron_job(suspend=True),))
    assert [each.outcome for each in held.objects] == ["it stays suspended"]
    wrong = planned(deployment(), cron_jobs=(cron_job(schedule="at noon"),))
    assert wrong.objects[0].outcome.startswith("it makes no more RayJobs: ")


def test_rayjobs_that_history_limits_would_delete_are_counted() -> None:
    ended = [job(f"nightly-{number}", jobDeploymentStatus="Complete") for number in range(5)]
    owner = controlled_by(RayCronJob.resource, "nightly", "uid-nightly")
    ended = [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, owner_references=(owner,)))
        for each in ended
    ]
    kept = planned(deployment(), cron_jobs=(cron_job(suspend=True),), jobs=tuple(ended))
    assert kept.objects[-1].outcome == "it stays suspended"
    limited = cron_job(suspend=True, successfulJobsHistoryLimit=3)
    made = planned(deployment(), cron_jobs=(limited,), jobs=tuple(ended))
    assert made.objects[-1].outcome == "2 RayJobs that are over would be deleted, by its history limits"


def test_a_pod_that_was_restarted_is_named() -> None:
    pod = msgspec.structs.replace(head(), status=msgspec.convert({"phase": "Running"}, type(head().status)))
    after = msgspec.convert({"phase": "Running", "containerStatuses": [{"restartCount": 1}]}, type(pod.status))
    found = compare([pod], {pod.metadata.uid: msgspec.structs.replace(pod, status=after)}, begun=True)
    assert found.restarted == (str(pod.key),)
    assert compare([pod], {pod.metadata.uid: pod}, begun=True).pods == 1
    assert compare([pod], {}, begun=True).gone == (str(pod.key),)
