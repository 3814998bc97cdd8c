"""Where a pool's pods are put."""

from datetime import timedelta
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.shapes import Part, time_span
from gpu_control_plane.kube.fields import OpenEnum, Rule, about

DEFAULT_TOPOLOGY_KEY: Final = "topology.kubernetes.io/zone"

_LABEL_KEY: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


class Strategy(OpenEnum):
    """How pods are spread over nodes."""

    BIN_PACK = "BinPack", "fill one node before the next, so that whole nodes stay free for large requests."
    SPREAD = "Spread", "keep pods apart, so that a failure hits few of them."


class NUMA(OpenEnum):
    """Whether the cards of one container lie together."""

    PREFERRED = "Preferred", "cards of one NUMA node are chosen where possible, and the kubelet gets their NUMA nodes."
    IGNORED = "Ignored", "NUMA plays no part."


class TaintEffect(OpenEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule", "pods that do not ask for the pool stay away."
    PREFER_NO_SCHEDULE = "PreferNoSchedule", "they stay away while there is room elsewhere."


class Taint(Part, frozen=True, kw_only=True):
    """A taint on the pool's nodes. Pods that ask for the pool tolerate it."""

    key: Annotated[
        str,
        about(
            "Key of the taint.",
            Rule(
                f"self.matches('{_LABEL_KEY}')",
                "write a taint key like a label key: a name, or <domain>/<name>, such as example.com/gpu",
            ),
            Rule(
                "!self.contains('kubernetes.io/')",
                "kubernetes.io taints belong to Kubernetes: use a domain of your own",
            ),
            minLength=1,
            maxLength=253,
        ),
    ]
    value: Annotated[
        str | None,
        about(
            "Value of the taint.",
            Rule(
                "self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",
                "write a taint value like a label value: letters, digits, '-', '_' and '.'",
            ),
            maxLength=63,
        ),
    ] = None
    effect: Annotated[TaintEffect, about("What the taint does. NoExecute is not offered: it would end running pods.")]


class Scheduling(Part, frozen=True, kw_only=True):
    """Where pods are put."""

    strategy: Annotated[Strategy, about("How pods are spread over nodes.", default=True)] = Strategy.BIN_PACK
    topology_key: Annotated[
        str | None,
        about(
            "Node label over whose values Spread keeps pods of a namespace apart; "
            f"{DEFAULT_TOPOLOGY_KEY} and kubernetes.io/hostname if absent.",
            Rule(
                f"self.matches('{_LABEL_KEY}')",
                "write topologyKey as the key of a node label, such as kubernetes.io/hostname",
            ),
            minLength=1,
            maxLength=253,
        ),
    ] = None
    taints: Annotated[
        tuple[Taint, ...],
        about("Taints on nodes whose cards are in the pool.", keys=("key", "effect"), maxItems=8),
    ] = ()
    reservation_ttl: Annotated[
        str,
        about(
            "How long units stay promised to a pod that does not start, such as 90s or 5m.",
            Rule(
                "self.matches('^([0-9]{1,5}[smh])+$') && duration(self) >= duration('10s') && "
                "duration(self) <= duration('24h')",
                "write reservationTTL as a duration from 10s to 24h, such as 90s, 5m or 1h30m",
            ),
            default=True,
            maxLength=16,
        ),
    ] = "5m"
    numa: Annotated[NUMA, about("Whether the cards of one container lie together.", default=True)] = NUMA.PREFERRED

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.topologyKey) || self.strategy == 'Spread'",
            "topologyKey has a meaning with strategy Spread only: remove it or choose Spread",
        ),
    )

    @property
    def reservation_time(self) -> timedelta:
        """`reservation_ttl` as a span of time."""
        return time_span(self.reservation_ttl)
