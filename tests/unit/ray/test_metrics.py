"""The metrics of KubeRay, with its names and labels, from what the caches hold."""

from datetime import timedelta

from prometheus_client import CollectorRegistry, generate_latest

from gpu_control_plane.kube.objects import Object
from gpu_control_plane.ray.metrics import RayMetrics
from unit.ray.waiting.builders import NOON, cluster, condition, job, lookup, service, worker

ABOUT = 'name="{0}",namespace="research",uid="uid-{0}"'


def scraped(*items: Object, shown: bool = True) -> dict[str, float]:
    registry = CollectorRegistry()
    RayMetrics(registry, lookup(*items), lambda: shown)
    lines = generate_latest(registry).decode().splitlines()
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_clusters() -> None:
    ready = cluster(
        labels={"ray.io/originated-from-crd": "RayJob"},
        conditions=[condition("RayClusterProvisioned", "True", minutes_ago=28)],
    )
    about, fresh = ABOUT.format("eval"), ABOUT.format("fresh")
    assert scraped(ready, cluster("fresh"), worker(), worker(2)) == {
        'kuberay_cluster_info{name="eval",namespace="research",owner_kind="RayJob",uid="uid-eval"}': 1,
        'kuberay_cluster_info{name="fresh",namespace="research",owner_kind="None",uid="uid-fresh"}': 1,
        f'kuberay_cluster_condition_provisioned{{condition="true",{about}}}': 1,
        f'kuberay_cluster_condition_provisioned{{condition="false",{fresh}}}': 1,
        f"kuberay_cluster_provisioned_duration_seconds{{{about}}}": 120,
        'gpu_ray_workers_waiting{cluster="eval",group="gpu",namespace="research"}': 2,
    }


def test_jobs() -> None:
    began = NOON - timedelta(minutes=10)
    done = job(jobDeploymentStatus="Failed", failed=2, startTime=began, endTime=NOON)
    waiting = job("next", jobDeploymentStatus="Initializing", startTime=began)
    about, later = ABOUT.format("train"), ABOUT.format("next")
    assert scraped(done, waiting) == {
        f"kuberay_job_info{{{about}}}": 1,
        f"kuberay_job_info{{{later}}}": 1,
        f'kuberay_job_deployment_status{{deployment_status="Failed",{about}}}': 1,
        f'kuberay_job_deployment_status{{deployment_status="Initializing",{later}}}': 1,
        'kuberay_job_execution_duration_seconds{job_deployment_status="Failed",name="train",namespace="research",'
        'retry_count="1",uid="uid-train"}': 600,
        'gpu_ray_job_waiting_since_timestamp_seconds{name="next",namespace="research"}': began.timestamp(),
    }


def test_services() -> None:
    since = NOON - timedelta(minutes=5)
    conditions = [condition("Ready", "False"), condition("UpgradeInProgress", "True")]
    about = ABOUT.format("serve")
    assert scraped(service(conditions=conditions)) == {
        f"kuberay_service_info{{{about}}}": 1,
        f'kuberay_service_condition_ready{{condition="false",{about}}}': 1,
        f'kuberay_service_condition_upgrade_in_progress{{condition="true",{about}}}': 1,
        'gpu_ray_service_not_ready_since_timestamp_seconds{name="serve",namespace="research"}': since.timestamp(),
    }


def test_who_does_not_lead_shows_nothing() -> None:
    assert scraped(cluster(), job(), service(), shown=False) == {}
