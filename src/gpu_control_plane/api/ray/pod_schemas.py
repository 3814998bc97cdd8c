"""Schemas of pods, their parts and Services, as far as people write them by hand and get them wrong.

They are Kubernetes' own: nothing is refused here that a pod or Service may have, and every other field is kept as it
is. A number where a text belongs is so refused by the API server when the object is written, and not by the pod's
creation later.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpu_control_plane.kube.fields import PRESERVE_UNKNOWN

type _Schema = Mapping[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_WORDS: Final[_Schema] = {"type": "object", "additionalProperties": _TEXT}


def _part(needs: tuple[str, ...] = (), **fields: _Schema) -> dict[str, Any]:
    """An object that keeps the fields that are not named here."""
    part: dict[str, Any] = {"type": "object"}
    if needs:
        part["required"] = list(needs)
    if fields:
        part["properties"] = fields
    return part | dict(PRESERVE_UNKNOWN)


def _list_of(item: _Schema) -> dict[str, Any]:
    return {"type": "array", "items": item, "x-kubernetes-list-type": "atomic"}


QUANTITY: Final[dict[str, Any]] = {
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}
_AMOUNTS: Final[_Schema] = {"type": "object", "additionalProperties": QUANTITY}
_NAMED: Final = _list_of(_part(("name",), name=_TEXT))
RESOURCES: Final = _part(limits=_AMOUNTS, requests=_AMOUNTS, claims=_NAMED)
ENV_VAR: Final = _part(("name",), name=_TEXT, value=_TEXT, valueFrom=_part())
VOLUME_MOUNT: Final = _part(("name", "mountPath"), name=_TEXT, mountPath=_TEXT)
_CONTAINER: Final = _part(
    ("name",),
    name=_TEXT,
    image=_TEXT,
    imagePullPolicy=_TEXT,
    command=_list_of(_TEXT),
    args=_list_of(_TEXT),
    env=_list_of(ENV_VAR),
    envFrom=_list_of(_part()),
    ports=_list_of(_part(("containerPort",), containerPort={"type": "integer", "format": "int32"}, name=_TEXT)),
    resources=RESOURCES,
    volumeMounts=_list_of(VOLUME_MOUNT),
)
TEMPLATE: Final = _part(
    metadata=_part(labels=_WORDS, annotations=_WORDS),
    spec=_part(
        ("containers",),
        containers=_list_of(_CONTAINER),
        initContainers=_list_of(_CONTAINER),
        volumes=_NAMED,
        resourceClaims=_NAMED,
        schedulingGates=_NAMED,
        affinity=_part(),
        nodeSelector=_WORDS,
        tolerations=_list_of(_part()),
        serviceAccountName=_TEXT,
        restartPolicy=_TEXT,
        schedulerName=_TEXT,
        priorityClassName=_TEXT,
    ),
)
SERVICE: Final = _part(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata=_part(name=_TEXT, labels=_WORDS, annotations=_WORDS),
    spec=_part(
        type=_TEXT,
        selector=_WORDS,
        ports=_list_of(_part(("port",), port={"type": "integer", "format": "int32"}, name=_TEXT)),
    ),
)
