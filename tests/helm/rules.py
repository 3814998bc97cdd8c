"""Rules of RBAC, and whether some of them grant at least what others do, judged as Kubernetes judges it.

Nobody may write a role that grants more than he has himself.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec


class Rule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()

    def allows(self, right: "Right") -> bool:
        return (
            right.group in self.api_groups
            and right.resource in self.resources
            and right.verb in self.verbs
            and (not self.resource_names or right.name in self.resource_names)
        )

    def rights(self) -> Iterator["Right"]:
        """All that it grants, one by one."""
        names = self.resource_names or (None,)
        for group, resource, verb, name in itertools.product(self.api_groups, self.resources, self.verbs, names):
            yield Right(group, resource, verb, name)


class Right(NamedTuple):
    """One verb on one resource; without a name on all objects of it."""

    group: str
    resource: str
    verb: str
    name: str | None = None


def rules_of(role: dict[str, Any]) -> list[Rule]:
    """The rules of a Role or ClusterRole."""
    return msgspec.convert(role.get("rules") or [], list[Rule])


def uncovered(wanted: Iterable[Rule], held: Iterable[Rule]) -> set[Right]:
    """What the first grant and the second do not. No rule here is a wildcard: another test sees to that."""
    owned = tuple(held)
    return {right for rule in wanted for right in rule.rights() if not any(each.allows(right) for each in owned)}
