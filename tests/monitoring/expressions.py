"""What an expression is made of, as far as tests have to know: its metrics, and what is done with them."""

import re
from typing import Final

OF_KUBERNETES: Final = (
    "kube_node_status_allocatable",
    "kube_pod_container_resource_limits",
    "kube_pod_status_phase",
    "kube_deployment_spec_replicas",
    "kube_deployment_status_replicas_available",
    "kube_daemonset_status_number_unavailable",
    "kube_daemonset_status_updated_number_scheduled",
)
"""Metrics that come from kube-state-metrics. A test asks a real one for them."""

_QUOTED: Final = re.compile(r'"[^"]*"')
_LABELS: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right) \([^)]*\)")
_METRIC: Final = re.compile(r"\b(?:DCGM_\w+|gpu_\w+|gpupool_\w+|kube_\w+|kuberay_\w+|up)\b")
_DONE: Final = re.compile(r"\b(rate|increase|histogram_quantile|changes|predict_linear|count)\b")
_SCALED: Final = re.compile(r"[*/] [\d.e]+$")
_SELECTOR: Final = re.compile(r"\{[^}]*\}")
_LEADING: Final = re.compile(r" and on \(instance\) kube_leading\{[^}]*\} == 1")


def metrics_in(expr: str) -> set[str]:
    """Every metric that it reads."""
    return set(_METRIC.findall(_LABELS.sub("", _SELECTOR.sub("", _QUOTED.sub("", expr)))))


def measured_in(expr: str) -> set[str]:
    """Those whose values it shows: not the one that picks the leader's."""
    return metrics_in(_LEADING.sub("", expr))


def treatment(expr: str) -> str:
    """What becomes of the values, such as `rate / 1e9`; empty when they are shown as they are."""
    plain = _SELECTOR.sub("", _QUOTED.sub("", expr))
    done = _DONE.search(plain)
    scaled = _SCALED.search(plain)
    share = re.search(r"\) / \(?(?:max|sum) by", plain)
    parts = [done[1] if done else "", scaled[0] if scaled else "", "share" if share else ""]
    return " ".join(filter(None, parts))
