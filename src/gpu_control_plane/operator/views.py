"""DaemonSets and their revisions as the software stack sees them: only the fields that decisions depend on.

One view of each for the whole operator, so that one process watches each kind once. Pods have the view `api.pod`, which
all controllers share.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.pod import Container, PlacedSpec, Volume
from gpu_control_plane.kube.objects import Object, OwnerReference, Resource, controller_of

REVISION_HASH = "controller-revision-hash"
"""Label of a DaemonSet's pod and of a ControllerRevision: which template they are of."""


class View(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Base of the parts of these views."""


class TemplateMeta(View, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class SecretRef(View, frozen=True, kw_only=True):
    name: str = ""


class EnvSource(View, frozen=True, kw_only=True):
    secret_ref: SecretRef = SecretRef()


class TemplateContainer(Container, frozen=True, kw_only=True):
    env_from: tuple[EnvSource, ...] = ()


class SecretSource(View, frozen=True, kw_only=True):
    secret_name: str = ""


class TemplateVolume(Volume, frozen=True, kw_only=True):
    secret: SecretSource = SecretSource()


class TemplateSpec(PlacedSpec, frozen=True, kw_only=True):
    """The spec of pods to be made, with the nodes that they are for, and the Secrets that they cannot start without."""

    containers: tuple[TemplateContainer, ...] = ()
    volumes: tuple[TemplateVolume, ...] = ()

    def __post_init__(self) -> None:
        """All volumes are kept, unlike those of pods."""

    @property
    def secrets(self) -> frozenset[str]:
        variables = (source.secret_ref.name for container in self.containers for source in container.env_from)
        files = (volume.secret.secret_name for volume in self.volumes)
        return frozenset(filter(None, (*variables, *files)))


class PodTemplate(View, frozen=True, kw_only=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: TemplateSpec = TemplateSpec()


class UpdateStrategy(View, frozen=True, kw_only=True):
    type: str = ""


class DaemonSetSpec(View, frozen=True, kw_only=True):
    template: PodTemplate = PodTemplate()
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_available: int = 0


ON_DELETE: Final = "OnDelete"
"""The update strategy of drivers: a pod is replaced only when it is deleted."""


class DaemonSet(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "DaemonSet", "daemonsets")

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()

    @property
    def on_delete(self) -> bool:
        return self.spec.update_strategy.type == ON_DELETE

    @property
    def idle(self) -> bool:
        """Whether its controller has observed its present generation, and found no node for it and no pod too many."""
        numbers = self.status
        busy = numbers.desired_number_scheduled or numbers.number_misscheduled
        return numbers.observed_generation >= self.metadata.generation and not busy


class ControllerRevision(Object, frozen=True):
    """A template that a DaemonSet has or had; the one with the highest number is the present one."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")

    revision: int = 0

    @property
    def controller(self) -> OwnerReference | None:
        return controller_of(self)

    @property
    def hash(self) -> str:
        return self.metadata.labels.get(REVISION_HASH, "")


def newest(revisions: Iterable[ControllerRevision]) -> ControllerRevision | None:
    """The present one of a DaemonSet's revisions."""
    return max(revisions, key=lambda held: held.revision, default=None)
