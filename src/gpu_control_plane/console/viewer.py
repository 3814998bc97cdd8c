"""The person a request comes from: who they are, what they may do, and a client that acts as them."""

import asyncio
from collections.abc import Iterable

from multidict import CIMultiDict

from gpu_control_plane.console.errors import NotAllowed
from gpu_control_plane.console.identity import Person
from gpu_control_plane.console.rights import Rights
from gpu_control_plane.kube.access_review import Right
from gpu_control_plane.kube.authentication import impersonation
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.kubeconfig import User
from gpu_control_plane.kube.objects import Object


class Viewer:
    """`request.state.viewer` of every page.

    `client` writes as this person: with their own token, or by impersonation where they have none that the API server
    takes. The API server decides what it lets through, and its audit log names the person.
    """

    def __init__(self, person: Person, rights: Rights, client: Client, *, owner: bool = False) -> None:
        """`owner` says that this is the owner of the console's own credentials, on their own machine."""
        self.person = person
        self.client = client
        self._rights = rights
        self._asked_as = None if owner else person

    @property
    def name(self) -> str:
        return self.person.name

    @property
    def groups(self) -> tuple[str, ...]:
        return self.person.groups

    async def may(self, verb: str, what: type[Object] | str, *, namespace: str | None = None, name: str = "") -> bool:
        """Whether RBAC lets this person do it; without a namespace, in all of them. `Unavailable` if nobody knows."""
        return await self.has(Right.of(verb, what, namespace=namespace, name=name))

    async def has(self, right: Right) -> bool:
        return await self._rights.allows(self._asked_as, right)

    async def require(self, right: Right) -> None:
        if not await self.has(right):
            raise NotAllowed(f"You may not {right}.")

    async def namespaces_with(self, verb: str, what: type[Object] | str, among: Iterable[str]) -> frozenset[str]:
        """In which of these namespaces this person may do it."""
        names = sorted(set(among))
        if await self.may(verb, what):
            return frozenset(names)
        answers = await asyncio.gather(*(self.may(verb, what, namespace=name) for name in names))
        return frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)


def client_with_token(client: Client, token: str) -> Client:
    """A client that is nobody but the holder of this token."""
    return client.for_config(client.config.with_token(token))


def impersonating_client(client: Client, person: Person) -> Client:
    """A client that asks, with our credentials, to be this person; the API server checks that we may ask so, and adds
    the groups that everybody is in."""
    who = User(
        as_user=person.name,
        as_uid=person.uid or None,
        as_groups=tuple(group for group in person.groups if not group.startswith("system:")),
        as_user_extra=dict(person.extra),
    )
    headers: CIMultiDict[str] = impersonation(who, f"person {person.name}")
    return client.for_config(client.config.impersonating(headers))
