"""`gpu-ray`: clusters, jobs and services of Ray, and what keeps them from running."""

from typing import Final

from monitoring.grafana import Dashboard, Panel, PanelType, Query, Row, Unit, Variable
from monitoring.promql import led

_HERE: Final = 'namespace=~"$namespace"'


def _shown(metric: str, matcher: str = "") -> str:
    return led(f"{metric}{{{', '.join(filter(None, (_HERE, matcher)))}}}")


NOW: Final = Row(
    "Now",
    (
        Panel(
            title="Clusters",
            about="RayClusters, also those of jobs and services.",
            queries=(Query(f"count({_shown('kuberay_cluster_info')})", "clusters", zero=True),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="Clusters that are not up",
            about="Not all of their pods have been up at once since they began.",
            queries=(
                Query(
                    f"count({_shown('kuberay_cluster_condition_provisioned', 'condition="false"')})",
                    "clusters",
                    zero=True,
                ),
            ),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=5,
            height=4,
        ),
        Panel(
            title="Workers that wait for cards",
            about="They ask for cards and have no node.",
            alerts=("GPURayWorkersWait",),
            queries=(Query(f"sum({_shown('gpu_ray_workers_waiting')})", "workers", zero=True),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=5,
            height=4,
            red_from=1,
        ),
        Panel(
            title="Jobs that wait",
            about="They are meant to run and do not.",
            alerts=("GPURayJobWaits",),
            queries=(Query(f"count({_shown('gpu_ray_job_waiting_since_timestamp_seconds')})", "jobs", zero=True),),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=5,
            height=4,
        ),
        Panel(
            title="Services that do not answer",
            about="They are meant to answer requests and do not.",
            alerts=("GPURayServiceNotReady",),
            queries=(
                Query(f"count({_shown('gpu_ray_service_not_ready_since_timestamp_seconds')})", "services", zero=True),
            ),
            unit=Unit.COUNT,
            look=PanelType.NUMBER,
            width=5,
            height=4,
            red_from=1,
        ),
        Panel(
            title="Workers that wait, by group",
            about="`kubectl gpu ray` says what each waits for.",
            alerts=("GPURayWorkersWait",),
            queries=(
                Query(
                    f"max by (namespace, cluster, group) {_shown('gpu_ray_workers_waiting')}",
                    "{{namespace}}/{{cluster}} {{group}}",
                ),
            ),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            width=12,
        ),
        Panel(
            title="Clusters, by what made them",
            about="`None` stands for those that people made.",
            queries=(Query(f"count by (owner_kind) ({_shown('kuberay_cluster_info')})", "{{owner_kind}}"),),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            width=12,
        ),
    ),
)

JOBS: Final = Row(
    "Jobs",
    (
        Panel(
            title="Jobs, by where they stand",
            about="RayJobs that are there, by their deployment status.",
            queries=(
                Query(
                    f"count by (deployment_status) ({_shown('kuberay_job_deployment_status')})",
                    "{{deployment_status}}",
                ),
            ),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            width=12,
        ),
        Panel(
            title="How long jobs took",
            about="The last try of each job that has ended.",
            queries=(
                Query(
                    "max by (namespace, name, job_deployment_status) "
                    f"{_shown('kuberay_job_execution_duration_seconds')}",
                    "Time",
                ),
            ),
            unit=Unit.SECONDS,
            look=PanelType.TABLE,
            width=12,
        ),
        Panel(
            title="How long jobs have waited",
            about="Since their try began, without running.",
            alerts=("GPURayJobWaits",),
            queries=(
                Query(
                    f"time() - max by (namespace, name) {_shown('gpu_ray_job_waiting_since_timestamp_seconds')}",
                    "Waiting",
                ),
            ),
            unit=Unit.SECONDS,
            look=PanelType.TABLE,
            width=12,
        ),
        Panel(
            title="How long clusters took to come up",
            about="From their creation until all their pods had been up.",
            queries=(
                Query(
                    f"max by (namespace, name) {_shown('kuberay_cluster_provisioned_duration_seconds')}",
                    "{{namespace}}/{{name}}",
                ),
            ),
            unit=Unit.SECONDS,
            width=12,
        ),
    ),
)

SERVICES: Final = Row(
    "Services",
    (
        Panel(
            title="Services",
            about="Whether each answers requests.",
            alerts=("GPURayServiceNotReady",),
            queries=(
                Query(f"count by (condition) ({_shown('kuberay_service_condition_ready')})", "ready: {{condition}}"),
            ),
            unit=Unit.COUNT,
            look=PanelType.STACKED,
            width=12,
        ),
        Panel(
            title="Services being upgraded",
            about="A second cluster of them is coming up.",
            queries=(
                Query(
                    "max by (namespace, name) "
                    f"{_shown('kuberay_service_condition_upgrade_in_progress', 'condition="true"')}",
                    "{{namespace}}/{{name}}",
                ),
            ),
            unit=Unit.COUNT,
            width=12,
        ),
    ),
)

RAY: Final = Dashboard(
    name="gpu-ray",
    title="GPU / Ray",
    about="Clusters, jobs and services of Ray, and what keeps them from running.",
    rows=(NOW, JOBS, SERVICES),
    variables=(Variable("namespace", "kuberay_cluster_info", "namespace", "Namespace"),),
    links=("gpu-workloads", "gpu-inventory", "gpu-node"),
)
