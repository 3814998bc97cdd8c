"""What cannot be carried out of a RayJob."""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Final

from gpu_control_plane.api.ray.job import (
    DeletionPolicy,
    DeletionRule,
    DeletionStrategy,
    RayJob,
    RayJobSpec,
    SubmissionMode,
)
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.rules.ray.cluster import made_cluster_faults, spec_faults
from gpu_control_plane.rules.ray.problem import Facts, Faults, Problem, problems_of
from gpu_control_plane.rules.ray.templates import pod_spec
from gpu_control_plane.rules.ray.texts import is_job_id, name_faults
from gpu_control_plane.rules.ray.yaml_map import BadYAMLMap, read_map

NAME_LIMIT: Final = 47
_KIND: Final = RayJob.resource.kind
_ORDER: Final = (DeletionPolicy.WORKERS, DeletionPolicy.CLUSTER, DeletionPolicy.SELF)
"""What goes first, if all of them are asked for."""


def job_problems(job: RayJob, facts: Facts = Facts()) -> tuple[Problem, ...]:  # noqa: B008 - it is frozen
    """Everything that is wrong with it; empty if it can be carried out."""
    return problems_of(job, chain(name_faults(job.name, NAME_LIMIT), job_faults(job, "spec", facts)))


def job_faults(job: RayJob, path: str, facts: Facts) -> Faults:
    """What is wrong with its spec."""
    spec = job.spec
    yield from _cluster_faults(spec, path)
    yield from _mode_faults(spec, path)
    yield from _suspension_faults(spec, path)
    yield from _number_faults(spec, path)
    yield from _environment_faults(spec, path)
    if spec.deletion_strategy is not None:
        yield from _deletion_faults(spec, spec.deletion_strategy, f"{path}.deletionStrategy")
    if spec.ray_cluster_spec is not None:
        place = f"{path}.rayClusterSpec"
        yield from made_cluster_faults(spec.ray_cluster_spec, place, _KIND)
        yield from spec_faults(spec.ray_cluster_spec, place, job.metadata.annotations, facts, maker=_KIND)


def _cluster_faults(spec: RayJobSpec, path: str) -> Faults:
    if not spec.cluster_selector:
        if spec.ray_cluster_spec is None:
            yield f"{path}.rayClusterSpec", "no cluster is given: describe one here, or name one in clusterSelector"
        return
    place = f"{path}.clusterSelector"
    if not spec.cluster_selector.get(Label.CLUSTER):
        yield place, f"it does not name a cluster: give the label {Label.CLUSTER.value} with the cluster's name"
    if spec.submission_mode == SubmissionMode.SIDECAR:
        yield place, "SidecarMode puts a container into a new head: use another submissionMode, or rayClusterSpec"
    if spec.backoff_limit:
        yield f"{path}.backoffLimit", "each try needs a new cluster, and clusterSelector names one: set it to 0"


def _mode_faults(spec: RayJobSpec, path: str) -> Faults:
    if spec.job_id and not is_job_id(spec.job_id):
        yield f"{path}.jobId", "Ray could not be asked for it: take letters, digits, - and _"
    if spec.submission_mode not in SubmissionMode.__members__.values():
        known = ", ".join(mode.value for mode in SubmissionMode)
        yield f"{path}.submissionMode", f"{spec.submission_mode} is none: take one of {known}"
    if spec.submission_mode == SubmissionMode.INTERACTIVE and spec.backoff_limit:
        yield f"{path}.backoffLimit", "a person submits the job in InteractiveMode, and only once: set it to 0"
    if spec.submission_mode == SubmissionMode.SIDECAR:
        for field, given in (
            ("submitterPodTemplate", spec.submitter_pod_template is not None),
            ("submitterConfig", spec.submitter_config is not None),
        ):
            if given:
                yield f"{path}.{field}", "in SidecarMode there is no pod of a submitter: remove it"
        if spec.ray_cluster_spec is not None:
            policy = pod_spec(spec.ray_cluster_spec.head_group_spec.template).restart_policy
            if policy not in {"", "Never"}:
                yield (
                    f"{path}.rayClusterSpec.headGroupSpec.template.spec.restartPolicy",
                    f"in SidecarMode the head ends with its job: set Never instead of {policy}",
                )


def _suspension_faults(spec: RayJobSpec, path: str) -> Faults:
    if spec.suspend and not spec.shutdown_after_job_finishes:
        yield f"{path}.suspend", "a suspended job has no cluster: set shutdownAfterJobFinishes to true, too"
    if spec.suspend and spec.cluster_selector:
        yield f"{path}.suspend", "the cluster of clusterSelector is not this job's to delete: remove one of the two"
    if spec.ttl_seconds_after_finished > 0 and not spec.shutdown_after_job_finishes:
        yield (
            f"{path}.ttlSecondsAfterFinished",
            "nothing goes after that time: set shutdownAfterJobFinishes to true, too",
        )


def _number_faults(spec: RayJobSpec, path: str) -> Faults:
    if spec.ttl_seconds_after_finished < 0:
        yield f"{path}.ttlSecondsAfterFinished", "it is less than none: take 0 or more"
    if spec.backoff_limit is not None and spec.backoff_limit < 0:
        yield f"{path}.backoffLimit", "it is less than none: take 0 or more"
    for field, seconds in (
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("preRunningDeadlineSeconds", spec.pre_running_deadline_seconds),
    ):
        if seconds is not None and seconds <= 0:
            yield f"{path}.{field}", "no job is as fast as that: take 1 or more, or remove it"


def _environment_faults(spec: RayJobSpec, path: str) -> Faults:
    if not spec.runtime_env_yaml:
        return
    try:
        read_map(spec.runtime_env_yaml)
    except BadYAMLMap as error:
        yield f"{path}.runtimeEnvYAML", str(error)


def _deletion_faults(spec: RayJobSpec, strategy: DeletionStrategy, path: str) -> Faults:
    rules = strategy.deletion_rules
    pair = [("onSuccess", strategy.on_success), ("onFailure", strategy.on_failure)]
    if rules is not None:
        if any(held is not None for _, held in pair):
            yield (
                path,
                "deletionRules and the deprecated onSuccess and onFailure exclude each other: keep the rules",
            )
        if spec.shutdown_after_job_finishes:
            yield (
                f"{path.rsplit('.', 1)[0]}.shutdownAfterJobFinishes",
                "deletionRules say what goes: remove one of the two",
            )
        yield from _rule_faults(spec, rules, f"{path}.deletionRules")
        return
    for field, held in pair:
        policy = held.policy if held is not None else None
        place = f"{path}.{field}.policy"
        if policy is None:
            yield place, "without deletionRules it is needed, of both onSuccess and onFailure: better use deletionRules"
            continue
        if policy == DeletionPolicy.NONE and spec.shutdown_after_job_finishes:
            yield place, "DeleteNone and shutdownAfterJobFinishes exclude each other: remove one of the two"
        yield from _policy_faults(spec, policy, place)


def _rule_faults(spec: RayJobSpec, rules: tuple[DeletionRule, ...], path: str) -> Faults:
    if not rules:
        yield path, "there is no rule: give one, or remove deletionStrategy"
    first: dict[tuple[str, str], int] = {}
    times: dict[str, dict[str, tuple[int, int]]] = {}
    for index, rule in enumerate(rules):
        place, condition = f"{path}[{index}]", rule.condition
        if (condition.job_status is None) == (condition.job_deployment_status is None):
            yield f"{place}.condition", "it has either jobStatus or jobDeploymentStatus: name one of the two"
            continue
        if condition.ttl_seconds < 0:
            yield f"{place}.condition.ttlSeconds", "it is less than none: take 0 or more"
        state = condition.job_status or f"jobDeploymentStatus {condition.job_deployment_status}"
        before = first.setdefault((rule.policy, state), index)
        if before != index:
            yield place, f"deletionRules[{before}] has the same policy and condition: keep one of the two"
        else:
            times.setdefault(state, {})[rule.policy] = (index, condition.ttl_seconds)
        yield from _policy_faults(spec, rule.policy, f"{place}.policy")
    for state, held in times.items():
        yield from _order_faults(state, held, path)


def _order_faults(state: str, held: dict[str, tuple[int, int]], path: str) -> Iterator[tuple[str, str]]:
    """What takes more with it goes later."""
    asked = [policy for policy in _ORDER if policy in held]
    for smaller, larger in pairwise(asked):
        (_, early), (index, late) = held[smaller], held[larger]
        if late < early:
            order = f"after {state}, {larger.value} comes at {late} s and {smaller.value} at {early} s"
            yield (
                f"{path}[{index}].condition.ttlSeconds",
                f"{order}, which would find nothing: let {larger.value} come later",
            )


def _policy_faults(spec: RayJobSpec, policy: DeletionPolicy, path: str) -> Faults:
    takes_cluster = policy in {DeletionPolicy.CLUSTER, DeletionPolicy.WORKERS}
    if spec.cluster_selector and takes_cluster:
        yield path, f"{policy} would delete what clusterSelector names, and that is not this job's: take another policy"
    cluster = spec.ray_cluster_spec
    if policy == DeletionPolicy.WORKERS and cluster is not None and cluster.autoscales:
        yield path, "Ray's autoscaler would bring the workers back: take DeleteCluster, or switch autoscaling off"
