"""The reference page of Ray's kinds. A RayCluster's spec occurs in the other kinds, too, and is described once."""

from collections.abc import Iterator
from typing import Final

from gpu_control_plane.api.markdown import code, columns, rules, table, text, vocabularies
from gpu_control_plane.api.ray import cluster, cronjob, job, names, reasons, service
from gpu_control_plane.api.shared_parts import FIELD_HEAD, SharedParts, Struct
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.schema import first_paragraph

_KINDS: Final[tuple[tuple[Definition, Struct, Struct], ...]] = (
    (cluster.DEFINITION, cluster.RayClusterSpec, cluster.RayClusterStatus),
    (job.DEFINITION, job.RayJobSpec, job.RayJobStatus),
    (service.DEFINITION, service.RayServiceSpec, service.RayServiceStatus),
    (cronjob.DEFINITION, cronjob.RayCronJobSpec, cronjob.RayCronJobStatus),
)
_SHARED: Final = SharedParts(
    [part for _, *parts in _KINDS for part in parts],
    leave_out=(cluster.RayClusterSpec, cluster.RayClusterStatus, job.RayJobSpec),
)
_VOCABULARY: Final = (
    ("Labels", names.Label),
    ("Annotations", names.Annotation),
    ("Finalizers", names.Finalizer),
    ("Conditions of a RayCluster", cluster.ClusterCondition),
    ("Reasons in conditions of a RayCluster", reasons.ClusterReason),
    ("States of a RayJob", job.JobDeploymentStatus),
    ("Why a RayJob has failed", job.JobFailedReason),
    ("Conditions of a RayService", service.ServiceCondition),
    ("Reasons in conditions of a RayService", reasons.ServiceReason),
    ("Conditions of a RayCronJob", cronjob.CronJobCondition),
)


def ray_reference(header: str) -> str:
    """The whole page as Markdown."""
    chapters = (_opening(header), *map(_kind, _KINDS), _shared_parts(), _names())
    return "\n".join(line for chapter in chapters for line in chapter).rstrip() + "\n"


def _opening(header: str) -> Iterator[str]:
    yield f"<!-- {header} -->\n"
    yield "# API reference: the kinds of Ray\n"
    yield (
        f"Group `{names.GROUP}`, version `{names.VERSION}`. All kinds are namespaced; manifests written for KubeRay "
        "mean the same here. A field marked \\* is required. What is called ours KubeRay does not have: where its "
        "CRDs were there before, they stay, and the API server drops those fields. Of templates of pods the API server "
        "checks what people write by hand, and keeps everything. `kubectl explain` shows all of this, too. The kinds "
        "of the group `gpu.deckhouse.io` are in the [API reference](api.md).\n"
    )
    yield from table(
        ("Kind", "Also served", "What it is"),
        (
            (
                f"[{one.resource.kind}](#{one.resource.kind.lower()})",
                ", ".join(f"{code(f'{names.GROUP}/{older.name}')}, deprecated" for older in one.older),
                text(first_paragraph(one.kind)),
            )
            for one, *_ in _KINDS
        ),
    )


def _kind(described: tuple[Definition, Struct, Struct]) -> Iterator[str]:
    definition, spec, status = described
    kind = definition.resource.kind
    yield f"## {kind}\n"
    yield f"{text(first_paragraph(definition.kind))}\n"
    yield from columns(definition)
    for part in (spec, status):
        yield f"### {part.__name__}\n"
        yield from table(FIELD_HEAD, _SHARED.rows(part))
    if broken := rules(definition.schema()):
        yield f"### {kind} rules\n"
        yield "Objects that break one of these are refused.\n"
        yield from table(("What the API server says", "Where"), broken)


def _shared_parts() -> Iterator[str]:
    yield "## Shared parts\n"
    yield from _SHARED.chapters()


def _names() -> Iterator[str]:
    yield "## Names\n"
    yield from vocabularies(_VOCABULARY)
