"""Which of the Secrets that drivers name do not exist.

The controller may not read Secrets. It tries out, in a dry run, to create one of the name: the API server refuses that
if there is one, and shows nothing of it. Nothing says when a missing one appears, so whoever waits for it asks again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import ClassVar

import structlog

from gpu_control_plane.kube import Client, Object
from gpu_control_plane.kube.errors import AlreadyExists, ApiError
from gpu_control_plane.kube.objects import Resource

_log = structlog.get_logger(component="operator.driver_secrets")


class Secret(Object, frozen=True):
    """A Secret, without what is in it."""

    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")


class DriverSecrets:
    """Asks whether Secrets of the operands' namespace exist. An answer counts for `interval` seconds."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        interval: float,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self.interval = interval
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._answers: dict[str, tuple[float, bool]] = {}
        """By name, when it was asked for, and whether it is missing."""

    async def missing(self, names: Iterable[str]) -> frozenset[str]:
        """Those of the Secrets that do not exist. One of which it cannot be found out counts as existing."""
        return frozenset([name for name in sorted(set(names)) if await self._missing(name)])

    async def _missing(self, name: str) -> bool:
        now = self._clock()
        asked, missing = self._answers.get(name, (None, False))
        if asked is None or now >= asked + self.interval:
            missing = await self._ask(name)
            self._answers[name] = now, missing
        return missing

    async def _ask(self, name: str) -> bool:
        try:
            await self._client.try_create(Secret, {"metadata": {"name": name}}, self._namespace)
        except AlreadyExists:
            return False
        except ApiError as error:
            _log.warning(
                "cannot find out whether a Secret exists", namespace=self._namespace, name=name, why=str(error)
            )
            return False
        return True
