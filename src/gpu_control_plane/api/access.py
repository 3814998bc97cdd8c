"""Who may use a pool, and how much of it."""

from typing import Annotated, ClassVar

from gpu_control_plane.api.allocation import MAX_LAYOUT, Profile
from gpu_control_plane.api.selectors import Selector
from gpu_control_plane.api.shapes import DNS_LABEL, NAMESPACE_RULE, Namespace, Part
from gpu_control_plane.kube.fields import Rule, about

_NamespaceName = Annotated[
    Namespace,
    about(
        "Name of a namespace.",
        Rule(
            f"self.matches('{DNS_LABEL}')",
            "name one namespace at a time; for several by label, or all of them ({}), use access.namespaceSelector",
        ),
    ),
]
_Subject = Annotated[str, about(minLength=1, maxLength=253)]


class ServiceAccount(Part, frozen=True, kw_only=True):
    """A service account."""

    namespace: Annotated[Namespace, about("Namespace of the service account.", NAMESPACE_RULE)]
    name: Annotated[str, about("Name of the service account.", minLength=1, maxLength=253)]


class Access(Part, frozen=True, kw_only=True):
    """Who may ask for the pool's resources; any match is enough. The RBAC verb use on the pool grants it too."""

    namespaces: Annotated[
        tuple[_NamespaceName, ...], about("Every pod in these namespaces.", unique=True, maxItems=512)
    ] = ()
    namespace_selector: Annotated[
        Selector | None, about("Every pod in namespaces with these labels; {} means every namespace.")
    ] = None
    service_accounts: Annotated[
        tuple[ServiceAccount, ...],
        about("Pods that run as these service accounts.", keys=("namespace", "name"), maxItems=512),
    ] = ()
    users: Annotated[
        tuple[_Subject, ...],
        about(
            "Pods created directly by these users (pods of a Deployment or Job are created by a controller).",
            unique=True,
            maxItems=256,
        ),
    ] = ()
    groups: Annotated[
        tuple[_Subject, ...],
        about("Pods created directly by members of these groups.", unique=True, maxItems=256),
    ] = ()


class ProfileQuota(Part, frozen=True, kw_only=True):
    """The limit for one profile."""

    profile: Profile
    units: Annotated[int, about("Most instances of this profile at once; 0 is none.", minimum=0, maximum=1_000_000)]


class Quota(Part, frozen=True, kw_only=True):
    """What one namespace may hold at once."""

    namespace: Annotated[Namespace, about("Namespace the limit is for.", NAMESPACE_RULE)]
    units: Annotated[
        int | None,
        about(
            "Most units (cards, instances or replicas) of each of the pool's resources at once; 0 is none.",
            minimum=0,
            maximum=1_000_000,
        ),
    ] = None
    profiles: Annotated[
        tuple[ProfileQuota, ...],
        about(
            "Limits for single profiles of a mixed MIG layout, in place of units.",
            keys=("profile",),
            minItems=1,
            maxItems=MAX_LAYOUT,
        ),
    ] = ()

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.units) || has(self.profiles)", "a quota needs a limit: give units, profiles or both"),
    )
