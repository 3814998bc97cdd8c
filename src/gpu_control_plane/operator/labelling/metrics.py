"""Metrics of labelling. The number of series does not grow with the number of nodes."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.operator.labelling.label_index import LabelIndex


class LabellingMetrics:
    def __init__(self, registry: CollectorRegistry, index: LabelIndex, may_write: Callable[[], bool]) -> None:
        """While NVIDIA's operator is active, nodes lack labels that only this one writes; that is not counted."""
        self.written = Counter(
            "gpu_operator_labellings_total",
            "Times that labels of a node were written.",
            registry=registry,
        )
        Gauge(
            "gpu_operator_unlabelled_nodes",
            "Nodes that do not have all the labels they should have.",
            registry=registry,
        ).set_function(lambda: len(index.pending) if may_write() else 0)
        Gauge(
            "gpu_operator_host_driver_problems",
            "Nodes whose host brings a driver that is too old or does not work.",
            registry=registry,
        ).set_function(lambda: len(index.host_problems))
