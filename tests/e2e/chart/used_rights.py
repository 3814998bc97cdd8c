"""Which rights of the chart the programs have used, by the API server's audit log.

A right is a verb on a resource that a role gives to an account. RBAC lists them by rule; here they are counted one by
one, and names of objects are left out: a rule that names six CRDs is used when one of them is.
"""

import itertools
import json
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from gpu_control_plane.local.components import Component
from helm.chart import Objects
from helm.rules import rules_of

_ACCOUNT: Final = "gpu-control-plane-"
_FORBIDDEN: Final = 403


EVERYWHERE: Final = "the cluster"
OWN: Final = "its namespace"


class Granted(NamedTuple):
    """A right that the chart gives to an account."""

    account: str
    """Without the prefix that all of ours have."""
    where: str
    """`EVERYWHERE`, `OWN`, or the name of another namespace."""
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account} may {self.verb} {self.resource} in {self.where}"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request of one of our accounts."""

    account: str
    namespace: str
    """Of the account."""
    where: str
    resource: str
    verb: str
    code: int
    at: datetime

    @property
    def forbidden(self) -> bool:
        return self.code == _FORBIDDEN

    def used(self, granted: Collection[Granted]) -> Granted | None:
        """The right that allowed it: the narrower one where two do. None where it was none of the chart's."""
        for where in (self.where, EVERYWHERE):
            right = Granted(self.account, where, self.resource, self.verb)
            if right in granted:
                return right
        return None


def audit_flags(folder: Path, namespaces: Iterable[str]) -> dict[Component, tuple[str, ...]]:
    """Have the API server write down who asks for what, of the accounts of these namespaces."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{each}" for each in namespaces]}
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [ours, {"level": "None"}],
    }
    file = folder / "audit-policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    return {Component.APISERVER: (f"--audit-policy-file={file}", f"--audit-log-path={_log(folder)}")}


def read_calls(folder: Path) -> list[Call]:
    """All requests so far. What is asked about no resource, such as /version, needs no right of the chart."""
    with _log(folder).open(encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    return [_call(event) for event in events if "objectRef" in event and _account(event) is not None]


def granted_rights(objects: Objects, namespace: str) -> set[Granted]:
    """All that a chart gives to its accounts, as it was rendered for this namespace."""
    roles = {(each["kind"], _place(each), each["metadata"]["name"]): each for each in objects.of("Role", "ClusterRole")}
    found: set[Granted] = set()
    for binding in objects.of("RoleBinding", "ClusterRoleBinding"):
        place, reference = _place(binding), binding["roleRef"]
        role = roles.get((reference["kind"], place if reference["kind"] == "Role" else None, reference["name"]))
        accounts = [each["name"] for each in binding.get("subjects", []) if each["kind"] == "ServiceAccount"]
        for rule in rules_of(role) if role is not None else []:
            found |= {
                Granted(_short(account), _where(place, namespace), _named(right.group, right.resource), right.verb)
                for account in accounts
                for right in rule.rights()
            }
    return found


def unused_rights(page: str) -> dict[Granted, str]:
    """The reasons for rights that the programs may need and a run does not, from the table in docs/rbac.md."""
    rows = (line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `"))
    found: dict[Granted, str] = {}
    for row in rows:
        account, where, resources, verbs, why = (cell.strip() for cell in row)
        for resource, verb in itertools.product(_words(resources), _words(verbs)):
            right = Granted(account.strip("`"), where.strip("`"), resource, verb)
            assert right not in found, f"docs/rbac.md lists it twice: {right}"
            found[right] = why
    assert all(found.values()), "docs/rbac.md has a right without a reason"
    return found


def _words(cell: str) -> list[str]:
    return [word.strip().strip("`") for word in cell.split(",")]


def _place(manifest: dict[str, Any]) -> str | None:
    namespace: str | None = manifest["metadata"].get("namespace")
    return namespace


def _where(place: str | None, own: str) -> str:
    return EVERYWHERE if place is None else OWN if place == own else place


def _call(event: dict[str, Any]) -> Call:
    about = event["objectRef"]
    _system, _kind, own, account = event["user"]["username"].split(":")
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    return Call(
        account=_short(account),
        namespace=own,
        where=_where(about.get("namespace"), own),
        resource=_named(about.get("apiGroup", ""), resource),
        verb=event["verb"],
        code=event.get("responseStatus", {}).get("code", 0),
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
    )


def _account(event: dict[str, Any]) -> str | None:
    *_, account = event["user"]["username"].split(":")
    return account if account.startswith(_ACCOUNT) else None


def _short(account: str) -> str:
    return account.removeprefix(_ACCOUNT)


def _named(group: str, resource: str) -> str:
    """As people write it, such as gpudevices.gpu.deckhouse.io/status."""
    plural, _, subresource = resource.partition("/")
    return "/".join(filter(None, (".".join(filter(None, (plural, group))), subresource)))


def _log(folder: Path) -> Path:
    return folder / "audit.log"
