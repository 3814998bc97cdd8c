"""Evicts pods by the eviction API, which respects PodDisruptionBudgets and refuses where one does not allow it.

The answers are kept to ask less often, and to know that it was this process that asked. A process that has lost them
asks again, which does no harm.
"""

import random
from collections.abc import Callable
from typing import Final

from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.backoff import Backoff
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, NotFound
from gpu_control_plane.operator.upgrade.node_view import Refusal

_BACKOFF: Final = Backoff(first=5.0, most=60.0)


class Evictor:
    """Pods whose eviction was requested, by node, with the answers."""

    def __init__(self, client: Client, now: Callable[[], float], rng: random.Random | None = None) -> None:
        self._client = client
        self._now = now
        self._rng = rng or random.Random()
        self._leaving: dict[str, dict[str, float]] = {}
        self._refusals: dict[str, dict[str, Refusal]] = {}
        self._counts: dict[str, int] = {}
        self._since: dict[str, float] = {}

    def since(self, node: str) -> float | None:
        """When the API server first answered a request for a pod of the node; None if it has not yet."""
        return self._since.get(node)

    def leaving(self, node: str) -> dict[str, float]:
        """By UID, the pods that are leaving, and when their eviction was accepted."""
        return dict(self._leaving.get(node, {}))

    def refusals(self, node: str) -> dict[str, Refusal]:
        return dict(self._refusals.get(node, {}))

    def forget(self, node: str) -> None:
        """The node has reached a state in which no pod has to leave."""
        self._leaving.pop(node, None)
        self._since.pop(node, None)
        for uid in self._refusals.pop(node, {}):
            self._counts.pop(uid, None)

    def clear(self) -> None:
        """Another process may have evicted pods since."""
        for held in (self._leaving, self._since, self._refusals, self._counts):
            held.clear()

    async def evict(self, node: str, pod: Pod) -> Refusal | None:
        """Request an eviction once; the refusal if it was refused. A pod that is gone counts as evicted; one that was
        replaced or changed meanwhile is refused, and looked at again."""
        meta = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        try:
            await self._client.post(Pod, meta.name, "eviction", body, namespace=meta.namespace)
        except NotFound:
            pass
        except ApiError as error:
            return self._refused(node, meta.uid, error)
        self.accepted(node, meta.uid)
        return None

    def accepted(self, node: str, uid: str) -> None:
        """The request was accepted: the pod is leaving."""
        self._refusals.get(node, {}).pop(uid, None)
        self._counts.pop(uid, None)
        self._leaving.setdefault(node, {}).setdefault(uid, self._now())
        self.answered(node)

    def answered(self, node: str) -> None:
        """The API server has answered, possibly with a refusal."""
        self._since.setdefault(node, self._now())

    def _refused(self, node: str, uid: str, error: ApiError) -> Refusal:
        count = self._counts[uid] = self._counts.get(uid, 0) + 1
        refusal = Refusal(self._now() + _BACKOFF.delay(count, self._rng), error.message)
        self._refusals.setdefault(node, {})[uid] = refusal
        self.answered(node)
        return refusal
