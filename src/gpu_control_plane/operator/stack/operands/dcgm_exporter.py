"""The DCGM exporter: metrics of the cards for Prometheus, with the pods that use them."""

from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec, DCGMExporterSection
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.config_maps import follow_config, named
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.operands import dcgm
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.scraping import scraped
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class

_ENGINE: Final = "DCGM_REMOTE_HOSTENGINE_INFO"
_POD_LABELS: Final = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
_POD_UID: Final = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
_LABEL_ALLOWLIST: Final = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"
_METRICS_FROM_API: Final = "DCGM_EXPORTER_CONFIGMAP_DATA"
_METRICS: Final = "dcgm-metrics.csv"
_METRICS_PATH: Final = f"/etc/dcgm-exporter/{_METRICS}"
_JOBS: Final = "/var/lib/dcgm-exporter/job-mapping"
_KUBELET: Final = "/var/lib/kubelet"
_TRUE: Final = frozenset({"1", "t", "true"})


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    section = stage.policy.dcgm_exporter
    operand(daemonset, section, stage, image="DCGM_EXPORTER_IMAGE")
    if section.annotations:
        daemonset.template["metadata"].setdefault("annotations", {}).update(section.annotations)
    if on(section.host_pid, absent=False):
        daemonset.pod["hostPID"] = True
    _find_engine(daemonset, stage.policy)
    _name_pods(daemonset, section)
    _name_jobs(daemonset, section)
    _choose_metrics(daemonset, stage)
    kubelet = stage.policy.host_paths.kubelet_root_dir.rstrip("/") or _KUBELET
    daemonset.move_host_path("pod-gpu-resources", f"{kubelet}/pod-resources")


def _find_engine(daemonset: DaemonSet, policy: ClusterPolicySpec) -> None:
    """DCGM in a pod of its own has a Service; one on the host is reached through the network of the host."""
    if dcgm.enabled(policy):
        daemonset.main.set_env(_ENGINE, "nvidia-dcgm:5555")
    elif _told(policy.dcgm_exporter, _ENGINE).startswith("localhost"):
        daemonset.pod["hostNetwork"] = True
        daemonset.pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def _name_pods(daemonset: DaemonSet, section: DCGMExporterSection) -> None:
    if on(section.enable_pod_labels, absent=False):
        daemonset.main.set_env(_POD_LABELS, "true")
    if on(section.enable_pod_uid, absent=False):
        daemonset.main.set_env(_POD_UID, "true")
    if section.pod_label_allowlist_regex:
        daemonset.main.set_env(_LABEL_ALLOWLIST, ",".join(section.pod_label_allowlist_regex))
    if _reads_pods(section) or _told(section, _METRICS_FROM_API) not in {"", "none"}:
        daemonset.pod["automountServiceAccountToken"] = True


def _name_jobs(daemonset: DaemonSet, section: DCGMExporterSection) -> None:
    jobs = section.hpc_job_mapping
    if jobs is None or not on(jobs.enabled, absent=False):
        return
    folder = jobs.directory or _JOBS
    daemonset.main.set_env("DCGM_HPC_JOB_MAPPING_DIR", folder)
    daemonset.main.mount("hpc-job-mapping", folder, read_only=True)
    daemonset.add_volume("hpc-job-mapping", hostPath={"path": folder, "type": "DirectoryOrCreate"})


def _choose_metrics(daemonset: DaemonSet, stage: Stage) -> None:
    config = stage.policy.dcgm_exporter.config
    if config is None or not config.name:
        return
    named(stage.platform, config.name, _METRICS, field="dcgmExporter.config")
    daemonset.main.set_env("DCGM_EXPORTER_COLLECTORS", _METRICS_PATH)
    daemonset.main.mount("metrics-config", _METRICS_PATH, sub_path=_METRICS, read_only=True)
    items = [{"key": _METRICS, "path": _METRICS}]
    daemonset.add_volume("metrics-config", configMap={"name": config.name, "items": items})
    follow_config(daemonset, stage, config.name)


def _objects(manifests: list[Manifest], stage: Stage) -> list[Manifest]:
    """The Service as people want it, and the right to read pods only where something of pods is shown."""
    section = stage.policy.dcgm_exporter
    if not _reads_pods(section):
        manifests = [held for held in manifests if not held["kind"].startswith("ClusterRole")]
    for manifest in manifests:
        if manifest["kind"] == "Service" and section.service is not None:
            chosen = {
                "type": section.service.type,
                "internalTrafficPolicy": section.service.internal_traffic_policy,
            }
            manifest["spec"].update({name: value for name, value in chosen.items() if value})
    return scraped(manifests, section.service_monitor, absent=False)


def _reads_pods(section: DCGMExporterSection) -> bool:
    """Whether it asks the API server about pods, by the policy's fields or by the environment."""
    by_field = on(section.enable_pod_labels, absent=False) or on(section.enable_pod_uid, absent=False)
    return by_field or any(_told(section, name).lower() in _TRUE for name in (_POD_LABELS, _POD_UID))


def _told(section: DCGMExporterSection, name: str) -> str:
    """What people say in a variable; the last of several counts."""
    return next((variable.value for variable in reversed(section.env) if variable.name == name), "")


STATE = State(
    name="state-dcgm-exporter",
    enabled=lambda policy: on(policy.dcgm_exporter.enabled, absent=True),
    transform=_transform,
    objects=_objects,
    variants=by_runtime_class,
    env=lambda policy: policy.dcgm_exporter.env,
    runtime_class=True,
)
