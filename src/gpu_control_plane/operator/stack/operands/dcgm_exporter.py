"""The DCGM exporter: metrics of the cards for Prometheus, with the pods that use them."""

from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec, DCGMExporterSection
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.config_maps import add_config_digest, config_map_data
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.operands import dcgm
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, configure_service_monitors
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


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    section = render_input.policy.dcgm_exporter
    apply_operand_section(daemonset, section, render_input, image="DCGM_EXPORTER_IMAGE")
    if section.annotations:
        daemonset.template["metadata"].setdefault("annotations", {}).update(section.annotations)
    if on(section.host_pid, absent=False):
        daemonset.pod["hostPID"] = True
    _configure_engine(daemonset, render_input.policy)
    _name_pods(daemonset, section)
    _name_jobs(daemonset, section)
    _choose_metrics(daemonset, render_input)
    kubelet = render_input.policy.host_paths.kubelet_root_dir.rstrip("/") or _KUBELET
    daemonset.move_host_path("pod-gpu-resources", f"{kubelet}/pod-resources")


def _configure_engine(daemonset: DaemonSetManifest, policy: ClusterPolicySpec) -> None:
    """DCGM in a pod of its own is reached by its Service, one on the host through the network of the host."""
    if dcgm.enabled(policy):
        daemonset.main.set_env(_ENGINE, "nvidia-dcgm:5555")
    elif _env_value(policy.dcgm_exporter, _ENGINE).startswith("localhost"):
        daemonset.pod["hostNetwork"] = True
        daemonset.pod["dnsPolicy"] = "ClusterFirstWithHostNet"


def _name_pods(daemonset: DaemonSetManifest, section: DCGMExporterSection) -> None:
    if on(section.enable_pod_labels, absent=False):
        daemonset.main.set_env(_POD_LABELS, "true")
    if on(section.enable_pod_uid, absent=False):
        daemonset.main.set_env(_POD_UID, "true")
    if section.pod_label_allowlist_regex:
        daemonset.main.set_env(_LABEL_ALLOWLIST, ",".join(section.pod_label_allowlist_regex))
    if _reads_pods(section) or _env_value(section, _METRICS_FROM_API) not in {"", "none"}:
        daemonset.pod["automountServiceAccountToken"] = True


def _name_jobs(daemonset: DaemonSetManifest, section: DCGMExporterSection) -> None:
    jobs = section.hpc_job_mapping
    if jobs is None or not on(jobs.enabled, absent=False):
        return
    folder = jobs.directory or _JOBS
    daemonset.main.set_env("DCGM_HPC_JOB_MAPPING_DIR", folder)
    daemonset.main.mount("hpc-job-mapping", folder, read_only=True)
    daemonset.add_volume("hpc-job-mapping", hostPath={"path": folder, "type": "DirectoryOrCreate"})


def _choose_metrics(daemonset: DaemonSetManifest, render_input: RenderInput) -> None:
    config = render_input.policy.dcgm_exporter.config
    if config is None or not config.name:
        return
    config_map_data(render_input.platform, config.name, _METRICS, field="dcgmExporter.config")
    daemonset.main.set_env("DCGM_EXPORTER_COLLECTORS", _METRICS_PATH)
    daemonset.main.mount("metrics-config", _METRICS_PATH, sub_path=_METRICS, read_only=True)
    items = [{"key": _METRICS, "path": _METRICS}]
    daemonset.add_volume("metrics-config", configMap={"name": config.name, "items": items})
    add_config_digest(daemonset, render_input, config.name)


def _objects(manifests: list[Manifest], render_input: RenderInput) -> list[Manifest]:
    """The Service as the policy says, and the right to read pods only where metrics carry labels or UIDs of pods."""
    section = render_input.policy.dcgm_exporter
    if not _reads_pods(section):
        manifests = [held for held in manifests if not held["kind"].startswith("ClusterRole")]
    for manifest in manifests:
        if manifest["kind"] == "Service" and section.service is not None:
            chosen = {
                "type": section.service.type,
                "internalTrafficPolicy": section.service.internal_traffic_policy,
            }
            manifest["spec"].update({name: value for name, value in chosen.items() if value})
    return configure_service_monitors(manifests, section.service_monitor, absent=False)


def _reads_pods(section: DCGMExporterSection) -> bool:
    """Whether it reads pods from the API server: the policy's fields or variables of the environment say so."""
    by_field = on(section.enable_pod_labels, absent=False) or on(section.enable_pod_uid, absent=False)
    return by_field or any(_env_value(section, name).lower() in _TRUE for name in (_POD_LABELS, _POD_UID))


def _env_value(section: DCGMExporterSection, name: str) -> str:
    """The value of a variable that people wrote; of several the last."""
    return next((variable.value for variable in reversed(section.env) if variable.name == name), "")


STATE = StackState(
    name="state-dcgm-exporter",
    enabled=lambda policy: on(policy.dcgm_exporter.enabled, absent=True),
    transform=_transform,
    objects=_objects,
    variants=by_runtime_class,
    env=lambda policy: policy.dcgm_exporter.env,
    runtime_class=True,
)
