"""How pods that use a GPU are evicted from a node whose driver is to be replaced. Pure."""

from collections.abc import Iterable, Sequence

from gpu_control_plane.api.nvidia.names import NodeAnnotation, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, UpgradePolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.upgrade.actions import (
    EvictPods,
    NodePatch,
    UpgradeAction,
    Wait,
    enter_state,
    fail_upgrade,
    stamp,
)
from gpu_control_plane.operator.upgrade.deadlines import are_leaving, gone_by, renew_step
from gpu_control_plane.operator.upgrade.driver_restart import begin_restart
from gpu_control_plane.operator.upgrade.gpu_pods import (
    EvictionRules,
    eviction_problem,
    gpu_pods,
    is_active,
    pod_names,
    pods_to_drain,
    skips_drain,
)
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.selector import BadSelector, parse


def policy_problem(policy: UpgradePolicy) -> str | None:
    """Why the policy cannot be carried out; while there is such a reason no node starts."""
    wait, leave = policy.wait_for_completion, policy.drain
    selectors = {
        "waitForCompletion": wait.pod_selector if wait else "",
        "drain": leave.pod_selector if leave else "",
    }
    for section, text in selectors.items():
        try:
            parse(text)
        except BadSelector as error:
            return f"{section}.podSelector of the upgrade policy: {error}"
    return None


def wait_for_jobs(view: NodeView, policy: UpgradePolicy, now: float) -> UpgradeAction:
    """Wait until the selected pods have finished."""
    jobs = policy.wait_for_completion
    if jobs is None or not jobs.pod_selector:
        return _to_deletion("Pods that use a GPU have to leave", now)
    if fault := policy_problem(policy):
        return Wait(reason=fault)
    selector = parse(jobs.pod_selector)
    waiting = [pod for pod in view.pods if is_active(pod) and selector.matches(pod.metadata.labels)]
    if not waiting:
        return _to_deletion("The work that was waited for has ended", now)
    return _wait_for_jobs(view, pod_names(waiting), jobs.timeout_seconds, now)


def delete_pods(view: NodeView, policy: UpgradePolicy, now: float) -> UpgradeAction:
    """Evict the pods that use a GPU. If one of them may not be evicted, none is."""
    rules = policy.pod_deletion or PodDeletion()
    users = gpu_pods(view.pods, view.pool_resources)
    if not users:
        return begin_restart(view, "No pod uses a GPU", now)
    found = _evict(view, users, rules, now)
    if not isinstance(found, str):
        return found
    if policy.drain is not None and policy.drain.enable:
        return enter_state(UpgradeState.DRAIN_REQUIRED, f"The node is drained: {found}", now)
    return fail_upgrade(view, found, now)


def drain(view: NodeView, policy: UpgradePolicy, now: float) -> UpgradeAction:
    """Evict all selected pods. A driver is not replaced while pods use it, except pods that a person has excluded from
    drains."""
    rules = policy.drain if policy.drain is not None and policy.drain.enable else None
    if fault := policy_problem(policy):
        return Wait(reason=fault)
    leaving = pods_to_drain(view.pods, parse(rules.pod_selector)) if rules is not None else []
    if rules is not None and leaving:
        found = _evict(view, leaving, rules, now)
        return fail_upgrade(view, found, now) if isinstance(found, str) else found
    holding = [pod for pod in gpu_pods(view.pods, view.pool_resources) if not skips_drain(pod)]
    if holding:
        why = "drains are off" if rules is None else "the drain's podSelector leaves them out"
        return fail_upgrade(view, f"{pod_names(holding)} still use a GPU, and {why}", now)
    return begin_restart(view, "The node is drained" if rules is not None else "No pod uses a GPU", now)


def _wait_for_jobs(view: NodeView, waiting: str, limit: int, now: float) -> UpgradeAction:
    since = view.since(NodeAnnotation.WAIT_START)
    if not limit:
        return Wait(reason=f"{waiting} may finish first")
    if since is None:
        note = f"{waiting} may finish first, for {limit} s"
        return NodePatch(note=note, annotations={NodeAnnotation.WAIT_START: stamp(now)})
    if now >= since + limit:
        return _to_deletion(f"{waiting} did not finish in {limit} s", now)
    return Wait(reason=f"{waiting} may finish first", until=since + limit)


def _evict(view: NodeView, pods: Sequence[Pod], rules: PodDeletion | Drain, now: float) -> UpgradeAction | str:
    """The next action towards a node without these pods, or a sentence that says why they cannot be evicted."""
    since = view.since(NodeAnnotation.STEP_SINCE)
    if since is None or not view.unschedulable:
        return NodePatch(
            note="No new pods come to the node",
            annotations={} if since is not None else {NodeAnnotation.STEP_SINCE: stamp(now)},
            unschedulable=True,
        )
    limits = EvictionRules(force=rules.force, delete_empty_dir=rules.delete_empty_dir)
    staying = [pod for pod in pods if pod.metadata.uid not in view.leaving]
    if refused := [(pod, why) for pod in staying if (why := eviction_problem(pod, limits))]:
        return "; ".join(f"{pod.key} may not be evicted: {why}" for pod, why in refused[:3])
    if rules.timeout_seconds and now >= since + rules.timeout_seconds:
        return _overdue(view, pods, since, rules.timeout_seconds, now)
    willing = [pod for pod in staying if not pod.deleting and _may_try(view, pod, now)]
    if willing:
        return EvictPods(note=f"Evicting {pod_names(willing)}", pods=tuple(willing))
    again = [view.refusals[pod.metadata.uid].until for pod in staying if pod.metadata.uid in view.refusals]
    deadline = [since + rules.timeout_seconds] if rules.timeout_seconds else []
    return Wait(
        reason=f"{pod_names(pods)} have to leave{_refused(view, pods)}", until=min(again + deadline, default=None)
    )


def _overdue(view: NodeView, pods: Sequence[Pod], since: float, limit: int, now: float) -> UpgradeAction | str:
    """The time of the step is over. Pods that are leaving may finish; if no operator was there for most of the time, it
    starts anew."""
    if are_leaving(view, pods):
        until = gone_by(view, pods, since + limit, limit)
        if now < until:
            return Wait(reason=f"{pod_names(pods)} are leaving", until=until)
    elif renewal := renew_step(view, limit, now):
        return renewal
    return f"{pod_names(pods)} did not leave in {limit} s{_refused(view, pods)}"


def _may_try(view: NodeView, pod: Pod, now: float) -> bool:
    refusal = view.refusals.get(pod.metadata.uid)
    return refusal is None or refusal.until <= now


def _refused(view: NodeView, pods: Iterable[Pod]) -> str:
    """Why the eviction of one of them was refused, for the end of a sentence."""
    reasons = [
        f" ({pod.key}: {view.refusals[pod.metadata.uid].why})" for pod in pods if pod.metadata.uid in view.refusals
    ]
    return reasons[0] if reasons else ""


def _to_deletion(note: str, now: float) -> NodePatch:
    return enter_state(UpgradeState.POD_DELETION_REQUIRED, note, now, annotations={NodeAnnotation.WAIT_START: None})
