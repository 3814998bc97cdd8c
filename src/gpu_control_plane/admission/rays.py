"""The review of an object of Ray that is about to be written. Pure."""

import re
from collections.abc import Callable
from typing import Final

from gpu_control_plane.api.ray import RayCluster, RayCronJob, RayJob, RayService
from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE
from gpu_control_plane.kube.admission import AdmissionResponse, allow, deny
from gpu_control_plane.rules.ray.problem import Problem, says_all, sentences

type Ray = RayCluster | RayJob | RayService | RayCronJob

_INDEX: Final = re.compile(r"\[\d+\]")


def review_ray[T: Ray](
    after: T, before: T | None, problems: Callable[[T], tuple[Problem, ...]], *, only_warn: bool = False
) -> AdmissionResponse:
    """Refuse what cannot be carried out, unless it was so before at the same place.

    An object that is wrong already may so be mended in steps, and its labels may be changed; so may one of which too
    much was wrong to tell all of it. With `only_warn`, as where
    another operator carries it out, nothing is refused. `problems` says what is wrong with an object.
    """
    if after.deleting or _is_unchanged(after, before) or _is_elsewhere(after):
        return allow()
    found = problems(after)
    held = problems(before) if before is not None and found else ()
    known = {_place(problem) for problem in held}
    if only_warn or not says_all(held) or all(_place(problem) in known for problem in found):
        return allow(warnings=[str(problem) for problem in found])
    new = [problem for problem in found if _place(problem) not in known]
    return deny(f"This {after.resource.kind} cannot be carried out: {sentences(new)}")


def _is_unchanged(after: Ray, before: Ray | None) -> bool:
    """Whether nothing has changed that is looked at."""
    return (
        before is not None and after.spec == before.spec and after.metadata.annotations == before.metadata.annotations
    )


def _is_elsewhere(item: Ray) -> bool:
    """Whether another cluster runs it."""
    return getattr(item.spec, "managed_by", "") == MANAGED_BY_MULTIKUEUE


def _place(problem: Problem) -> str:
    """Where it is, whatever the number of its worker group or rule: groups before it may have gone."""
    return _INDEX.sub("[]", problem.path)
