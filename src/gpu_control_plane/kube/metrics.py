"""Every number the runtime reports, declared in one place and kept in one registry.

Names follow Prometheus' conventions and begin with `kube_`, since they describe requests to Kubernetes, not GPUs.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from gpu_control_plane.kube.errors import Conflict

# The library would add a series to every counter with the time of its creation, which no dashboard of ours reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@contextmanager
def counting_failures(failures: Counter) -> Iterator[None]:
    """Count what fails in the block. A conflict is no failure: another writer was faster."""
    try:
        yield
    except Conflict:
        raise
    except Exception:
        failures.inc()
        raise


class CountGauge:
    """A gauge that counts objects by their labels. A count of zero has no series."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._counts: dict[tuple[str, ...], int] = {}

    def move(self, was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> None:
        if was == now:
            return
        if was is not None:
            self._add(was, -1)
        if now is not None:
            self._add(now, 1)

    def _add(self, labels: tuple[str, ...], change: int) -> None:
        count = self._counts.get(labels, 0) + change
        if count:
            self._counts[labels] = count
            self._gauge.labels(*labels).set(count)
        else:
            del self._counts[labels]
            self._gauge.remove(*labels)


class Metrics:
    """The runtime's metrics. Pass one instance to every part of a process; tests make their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.api_requests = Counter(
            "kube_api_requests_total",
            "Requests to the API server; code `0` means there was no answer.",
            ("verb", "resource", "code"),
            registry=self.registry,
        )
        self.api_seconds = Histogram(
            "kube_api_request_seconds",
            "Time from sending a request to having read its answer, watches left out.",
            ("verb", "resource"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.api_retries = Counter(
            "kube_api_retries_total",
            "Requests sent again because the server asked to wait or wanted new credentials.",
            ("reason",),
            registry=self.registry,
        )
        self.watch_starts = Counter(
            "kube_watch_starts_total",
            "Watches begun, by why: `initial`, `resume`, `expired` (410) or `error`.",
            ("resource", "reason"),
            registry=self.registry,
        )
        self.watch_events = Counter(
            "kube_watch_events_total", "Events received by watches.", ("resource",), registry=self.registry
        )
        self.watch_undecodable = Counter(
            "kube_watch_undecodable_total",
            "Objects passed over because they do not fit their type.",
            ("resource",),
            registry=self.registry,
        )
        self.cache_objects = Gauge(
            "kube_cache_objects", "Objects held in a cache.", ("resource",), registry=self.registry
        )
        self.cache_synced = Gauge(
            "kube_cache_synced",
            "1 once a cache has seen everything that existed.",
            ("resource",),
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "kube_queue_depth", "Keys that wait for a worker.", ("controller",), registry=self.registry
        )
        self.queue_seconds = Histogram(
            "kube_queue_seconds",
            "Time a key waited in the queue.",
            ("controller",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.reconciles = Counter(
            "kube_reconciles_total",
            "Reconciles by result: `done`, `requeued`, `conflict` or `failed`.",
            ("controller", "result"),
            registry=self.registry,
        )
        self.reconcile_seconds = Histogram(
            "kube_reconcile_seconds",
            "Time one reconcile took.",
            ("controller",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.workers_busy = Gauge(
            "kube_workers_busy", "Workers that are reconciling.", ("controller",), registry=self.registry
        )
        self.leading = Gauge(
            "kube_leading", "1 while this process holds the lease.", ("lease",), registry=self.registry
        )
        self.events_written = Counter(
            "kube_events_written_total", "Kubernetes Events created or counted up.", registry=self.registry
        )
        self.events_dropped = Counter(
            "kube_events_dropped_total",
            "Kubernetes Events lost: `refused` by the API server, `overflow` (too many at a time) or `stopping`.",
            ("reason",),
            registry=self.registry,
        )
