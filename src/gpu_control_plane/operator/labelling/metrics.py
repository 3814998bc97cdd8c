"""What labelling counts. Series do not grow with the number of nodes."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpu_control_plane.operator.labelling.label_index import LabelBook


class LabellingMetrics:
    def __init__(self, registry: CollectorRegistry, book: LabelBook, may_write: Callable[[], bool]) -> None:
        """While another operator is in charge nodes lack labels that only ours would write: nothing is wrong then."""
        self.written = Counter(
            "gpu_operator_labellings_total",
            "Times that labels of a node were written.",
            registry=registry,
        )
        Gauge(
            "gpu_operator_unlabelled_nodes",
            "Nodes that do not have all the labels they should have.",
            registry=registry,
        ).set_function(lambda: len(book.outstanding) if may_write() else 0)
        Gauge(
            "gpu_operator_host_driver_problems",
            "Nodes whose host brings a driver that is too old or does not work.",
            registry=registry,
        ).set_function(lambda: len(book.problems))
