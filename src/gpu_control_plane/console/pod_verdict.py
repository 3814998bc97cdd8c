"""Why a pod waits, or which cards it holds: for its page and for the JSON API alike."""

import msgspec
from starlette.requests import Request

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.console.errors import NoSuchThing
from gpu_control_plane.pools.explain.explanation import Explanation
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.pods import explain_one


class PodVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that waits or holds cards. It may do both: a card can be held until its control group is gone."""

    waiting: WaitingPod | None
    explanation: Explanation | None
    cards: tuple[GPUDevice, ...]


async def find_verdict(request: Request) -> PodVerdict:
    """About the pod that the path names by `namespace` and `name`.

    It is explained from everything, as its Event was; what is said of others is for those who may list all pods.
    """
    key = request.path_params["namespace"], request.path_params["name"]
    whole: Fleet = request.app.state.caches.whole()
    cards = tuple(
        card
        for _, card in sorted(whole.cards.items())
        if any((user.namespace, user.pod) == key for user in card.status.used_by)
    )
    waiting = next((pod for pod in whole.waiting if (pod.metadata.namespace, pod.name) == key), None)
    if waiting is None and not cards:
        raise NoSuchThing(f"No pod {key[0]}/{key[1]} holds a card or waits for one.")
    explanation = explain_one(whole, waiting) if waiting is not None else None
    if explanation is not None and not await request.state.viewer.may("list", "pods"):
        explanation = msgspec.structs.replace(explanation, facts=())
    return PodVerdict(waiting=waiting, explanation=explanation, cards=cards)
