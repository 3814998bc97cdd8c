"""The numbers of the console."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class ConsoleMetrics:
    """Requests, people and what they do. Labels are routes and words of ours, never what a person typed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "gpu_console_requests_total",
            "Requests to the console by route and status code.",
            ("route", "code"),
            registry=registry,
        )
        self.request_seconds = Histogram(
            "gpu_console_request_seconds",
            "Time to answer a request, streams left out.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.actions = Counter(
            "gpu_console_actions_total",
            "Changes that people asked for, by route and outcome: `done`, `refused` or `failed`.",
            ("route", "outcome"),
            registry=registry,
        )
        self.refusals = Counter(
            "gpu_console_refusals_total",
            "Requests that were refused, by why: `NotSignedIn`, `ForeignOrigin`, `TooManyRequests` and so on.",
            ("reason",),
            registry=registry,
        )
        self.sign_ins = Counter(
            "gpu_console_sign_ins_total",
            "Attempts to sign in, by way (`oidc`, `token`, `link`) and outcome (`done` or `refused`).",
            ("way", "outcome"),
            registry=registry,
        )
        self.sessions = Gauge("gpu_console_sessions", "People's sessions that are open.", registry=registry)
        self.streams = Gauge("gpu_console_streams", "Pages that are open and follow changes.", registry=registry)
        self.render_seconds = Histogram(
            "gpu_console_render_seconds",
            "Time to render the changed parts of an open page.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.reviews = Counter(
            "gpu_console_reviews_total",
            "Questions to the API server by kind (`token`, `access`) and answer (`yes`, `no`, `none`).",
            ("kind", "answer"),
            registry=registry,
        )
