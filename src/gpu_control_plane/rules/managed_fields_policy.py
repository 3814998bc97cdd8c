"""The admission policies that keep people from writing what the control plane writes, and from signing for others.

RBAC says who may change a card at all, and people who approve cards may. `gpu-managed-fields` leaves them the
annotations and labels that are theirs: orders, claims and status are written by our own service accounts alone, or by
`system:masters` for repair. `gpu-approvals` sees that whoever is named as the approver of a card is the one who asks.
Both hold while every program of ours is down.
"""

from typing import Final

from gpu_control_plane.api.names import GROUP, Annotation, Label
from gpu_control_plane.rules.admission_policy import Manifest, binding, policy, validation

MANAGED: Final = "gpu-managed-fields"
APPROVALS: Final = "gpu-approvals"

PEOPLES_ANNOTATIONS: Final = (
    Annotation.ASSIGNMENT,
    Annotation.APPROVED_BY,
    Annotation.REASON,
    Annotation.HOLD,
    Annotation.CLEAR_FAULT,
)
"""Of a GPUDevice."""
PEOPLES_LABELS: Final = (Label.IGNORE,)

_NOT_REPAIR: Final = "!('system:masters' in request.userInfo.?groups.orValue([]))"


def managed_fields_policies(namespace: str) -> list[Manifest]:
    """The policies, each with its binding. Our service accounts are those of `namespace`."""
    not_ours = f"!('system:serviceaccounts:{namespace}' in request.userInfo.?groups.orValue([]))"
    managed = [
        "gpudevices",
        "gpudevices/status",
        "gpunodestates",
        "gpunodestates/status",
        "gpupools/status",
        "gpuapprovals/status",
    ]
    return [
        policy(
            MANAGED,
            rules=_rules(managed, ["CREATE", "UPDATE"]),
            conditions=_asked_by_others(f"{not_ours} && {_NOT_REPAIR}"),
            variables={},
            validations=_managed(),
        ),
        binding(MANAGED, ["Deny"]),
        policy(
            APPROVALS,
            rules=_rules(["gpudevices"], ["UPDATE"]),
            conditions=_asked_by_others(not_ours),
            variables=_approval_variables(),
            validations=_approvals(),
        ),
        binding(APPROVALS, ["Deny"]),
    ]


def _managed() -> list[Manifest]:
    creates = "request.operation == 'CREATE'"
    return [
        validation(
            f"!({creates})",
            "'GPUDevices and GPUNodeStates come from the reports of nodes: install the card, and run the agent there.'",
        ),
        validation(
            f"{creates} || request.?subResource.orValue('') != 'status' || object.?status == oldObject.?status",
            "'The status of ' + object.metadata.name + ' is written by the GPU control plane alone. What it follows"
            " from is the spec of pools, annotations of cards, and what nodes report.'",
        ),
        validation(
            f"{creates} || request.?subResource.orValue('') == 'status' || object.?spec == oldObject.?spec",
            "'The spec of ' + object.metadata.name + ' is written by the GPU control plane alone."
            f" A card is put into a pool by the annotation {Annotation.ASSIGNMENT} of its GPUDevice.'",
        ),
        validation(
            f"{creates} || {_unchanged('annotations', PEOPLES_ANNOTATIONS)}",
            f"'Of the annotations under {GROUP}/ people may write {', '.join(PEOPLES_ANNOTATIONS)}, on GPUDevices.'",
        ),
        validation(
            f"{creates} || {_unchanged('labels', PEOPLES_LABELS)}",
            f"'Of the labels under {GROUP}/ people may write {', '.join(PEOPLES_LABELS)}, on GPUDevices;"
            " use a domain of your own for others.'",
        ),
    ]


def _unchanged(field: str, free: tuple[str, ...]) -> str:
    """Whether what is ours among the annotations or labels stays as it is."""
    before, after = (f"{side}.metadata.?{field}.orValue({{}})" for side in ("oldObject", "object"))
    theirs = ", ".join(f"'{name}'" for name in free)
    ours = f"key.startsWith('{GROUP}/') && !(request.resource.resource == 'gpudevices' && key in [{theirs}])"
    return (
        f"({after}.all(key, !({ours}) || (key in {before} && {before}[key] == {after}[key]))"
        f" && {before}.all(key, !({ours}) || key in {after}))"
    )


def _approval_variables() -> dict[str, str]:
    return {
        name: f"{side}.metadata.?annotations.orValue({{}})[?'{key.value}'].orValue('')"
        for name, side, key in (
            ("poolBefore", "oldObject", Annotation.ASSIGNMENT),
            ("pool", "object", Annotation.ASSIGNMENT),
            ("signedBefore", "oldObject", Annotation.APPROVED_BY),
            ("signed", "object", Annotation.APPROVED_BY),
        )
    }


def _approvals() -> list[Manifest]:
    """An approval without a name is in order: the webhook may be away. A name of the past is not."""
    signs = "(variables.pool != variables.poolBefore || variables.signed != variables.signedBefore)"
    return [
        validation(
            f"!{signs} || variables.signed == '' || variables.signed == request.userInfo.?username.orValue('')",
            f"'The annotation {Annotation.APPROVED_BY} of ' + object.metadata.name + ' says ' + variables.signed"
            " + ', and you are ' + request.userInfo.?username.orValue('')"
            f" + '. Leave it out, or remove it: kubectl annotate gpudevice ' + object.metadata.name"
            f" + ' {Annotation.APPROVED_BY}-'",
        )
    ]


def _rules(resources: list[str], operations: list[str]) -> list[Manifest]:
    return [{"apiGroups": [GROUP], "apiVersions": ["*"], "operations": operations, "resources": resources}]


def _asked_by_others(condition: str) -> list[Manifest]:
    return [{"name": "asked-by-others", "expression": condition}]
