"""The review of a GPUPool that is about to be written. Pure."""

from collections.abc import Iterable

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Reason
from gpu_control_plane.kube.admission import AdmissionResponse, allow, deny
from gpu_control_plane.rules.pool_access import admitted_controllers
from gpu_control_plane.rules.pool_validation import new_fault


def review(
    pool: GPUPool, before: GPUPool | None, others: Iterable[GPUPool], own_namespace: str = DEFAULT_NAMESPACE
) -> AdmissionResponse:
    """Refuse a new pool whose fault does not go away by itself; warn about the rest. Our controllers are in
    `own_namespace`.

    A pool that already has the fault may be changed all the same: refusing would keep people from correcting it.
    """
    others = tuple(others)
    found = new_fault(pool, before, others)
    warnings = [
        f"spec.access names {name}: in that name controllers create the pods of every namespace, and all of them are "
        "let in. Name namespaces instead, or the service accounts that pods run as."
        for name in admitted_controllers(pool.spec.access, own_namespace)
    ]
    if found is None:
        return allow(warnings=warnings)
    had_it_before = before is not None and new_fault(before, before, others) == found
    if found.reason is Reason.NAME_COLLISION and not had_it_before:
        return deny(f"{found.message[0].upper()}{found.message[1:]}.")
    return allow(warnings=[found.message, *warnings])
