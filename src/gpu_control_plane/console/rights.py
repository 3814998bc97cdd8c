"""What somebody may do: the API server's SubjectAccessReview, remembered for half a minute.

The console reads with its own rights and shows what it has read, so this question stands before everything it shows.
Where there is no answer, there is no page.
"""

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.console.errors import Unavailable
from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from gpu_control_plane.console.identity import Person
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.objects import Object, Resource

_HOLDS_SECONDS: Final = 30.0
_MOST_ANSWERS: Final = 100_000
_PATIENCE_SECONDS: Final = 5.0


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A verb on a resource, in a namespace or in all of them."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, verb: str, what: type[Object] | str, *, namespace: str | None = None, name: str = "") -> "Right":
        """`what` is a kind, or a name such as `pods/eviction` or `gpudevices.gpu.deckhouse.io`."""
        if not isinstance(what, str):
            what = what.resource.qualified_name
        qualified, _, subresource = what.partition("/")
        resource, _, group = qualified.partition(".")
        return cls(
            verb=verb,
            group=group,
            resource=resource,
            subresource=subresource,
            namespace=namespace or "",
            name=name,
        )

    def __str__(self) -> str:
        what = ".".join(filter(None, (self.resource, self.group)))
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {what}{f'/{self.subresource}' if self.subresource else ''}{where}"


class _AccessStatus(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = False


class SubjectAccessReview(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
    )

    status: _AccessStatus = _AccessStatus()


class SelfSubjectAccessReview(SubjectAccessReview, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
    )


class Rights:
    """Asks the API server about rights. `Unavailable` where it does not answer."""

    def __init__(self, client: Client, metrics: ConsoleMetrics, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._metrics = metrics
        self._answers: ExpiringAnswers[tuple[Person | None, Right], bool] = ExpiringAnswers(most=_MOST_ANSWERS, now=now)

    async def allows(self, person: Person | None, right: Right) -> bool:
        """Whether this person has the right; None stands for the owner of our own credentials."""
        key = (person, right)
        return await self._answers.get(key, lambda: self._ask(person, right), lambda _allowed: _HOLDS_SECONDS)

    async def _ask(self, person: Person | None, right: Right) -> bool:
        kind: type[SubjectAccessReview] = SubjectAccessReview if person is not None else SelfSubjectAccessReview
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                review = await self._client.create(kind, {"spec": _spec(person, right)})
        except (KubeError, TimeoutError) as error:
            self._metrics.reviews.labels("access", "none").inc()
            raise Unavailable("The cluster does not answer, so nobody's rights can be checked. Try again.") from error
        self._metrics.reviews.labels("access", "yes" if review.status.allowed else "no").inc()
        return review.status.allowed


def _spec(person: Person | None, right: Right) -> dict[str, object]:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: dict[str, object] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    if person is not None:
        spec |= {"user": person.name, "uid": person.uid, "groups": person.groups, "extra": dict(person.extra)}
    return spec
