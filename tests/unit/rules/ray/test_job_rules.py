"""What is refused of a RayJob: rule by rule, with the sentence that its author reads."""

from collections.abc import Mapping

import msgspec
import pytest

from gpu_control_plane.api.ray import RayJob
from gpu_control_plane.rules.ray.job import job_problems
from ray_samples import NAMES, changed

CLUSTER = "spec.rayClusterSpec"
STRATEGY = "spec.deletionStrategy"
LATER = ", which would find nothing: let"
SELECTOR: Mapping[str, object] = {"spec.clusterSelector": {"ray.io/cluster": "minimal"}}


def job(edits: Mapping[str, object] | None = None, name: str = "job-simple") -> RayJob:
    return msgspec.convert(changed(name, edits or {}), RayJob)


def rules(*rules: tuple[str, str, int]) -> Mapping[str, object]:
    """A deletion strategy of rules: policy, status of the job, seconds."""
    return {
        STRATEGY: {
            "deletionRules": [
                {"policy": policy, "condition": {"jobStatus": status, "ttlSeconds": seconds}}
                for policy, status, seconds in rules
            ]
        }
    }


def pair(success: str, failure: str = "DeleteSelf") -> Mapping[str, object]:
    return {STRATEGY: {"onSuccess": {"policy": success}, "onFailure": {"policy": failure}}}


ROWS: list[tuple[str, Mapping[str, object], str, str]] = [
    (
        "a name is short enough for names made from it",
        {"metadata.name": "a" * 48},
        "metadata.name",
        "it has 48 characters, and names of pods and Services are made from it: take 47 at most",
    ),
    (
        "there is a cluster",
        {CLUSTER: None},
        CLUSTER,
        "no cluster is given: describe one here, or name one in clusterSelector",
    ),
    (
        "a selector names a cluster",
        {"spec.clusterSelector": {"team": "a"}},
        "spec.clusterSelector",
        "it does not name a cluster: give the label ray.io/cluster with the cluster's name",
    ),
    (
        "SidecarMode needs a new head",
        {**SELECTOR, CLUSTER: None, "spec.submissionMode": "SidecarMode"},
        "spec.clusterSelector",
        "SidecarMode puts a container into a new head: use another submissionMode, or rayClusterSpec",
    ),
    (
        "a job on a cluster that is there is not tried again",
        {**SELECTOR, "spec.backoffLimit": 1},
        "spec.backoffLimit",
        "each try needs a new cluster, and clusterSelector names one: set it to 0",
    ),
    (
        "what a person submits is not tried again",
        {"spec.submissionMode": "InteractiveMode", "spec.backoffLimit": 1},
        "spec.backoffLimit",
        "a person submits the job in InteractiveMode, and only once: set it to 0",
    ),
    (
        "a mode is known",
        {"spec.submissionMode": "PostMode"},
        "spec.submissionMode",
        "PostMode is none: take one of K8sJobMode, HTTPMode, InteractiveMode, SidecarMode",
    ),
    *(
        (
            f"SidecarMode has no {field}",
            {"spec.submissionMode": "SidecarMode", f"spec.{field}": {}},
            f"spec.{field}",
            "in SidecarMode there is no pod of a submitter: remove it",
        )
        for field in ("submitterPodTemplate", "submitterConfig")
    ),
    (
        "in SidecarMode the head is not restarted",
        {
            "spec.submissionMode": "SidecarMode",
            f"{CLUSTER}.headGroupSpec.template.spec.restartPolicy": "Always",
        },
        f"{CLUSTER}.headGroupSpec.template.spec.restartPolicy",
        "in SidecarMode the head ends with its job: set Never instead of Always",
    ),
    (
        "what is suspended has no cluster",
        {"spec.suspend": True},
        "spec.suspend",
        "a suspended job has no cluster: set shutdownAfterJobFinishes to true, too",
    ),
    (
        "a cluster that is there is not suspended",
        {**SELECTOR, "spec.suspend": True, "spec.shutdownAfterJobFinishes": True},
        "spec.suspend",
        "the cluster of clusterSelector is not this job's to delete: remove one of the two",
    ),
    (
        "seconds until something goes need something that goes",
        {"spec.ttlSecondsAfterFinished": 5},
        "spec.ttlSecondsAfterFinished",
        "nothing goes after that time: set shutdownAfterJobFinishes to true, too",
    ),
    (
        "seconds until something goes are not less than none",
        {"spec.ttlSecondsAfterFinished": -5},
        "spec.ttlSecondsAfterFinished",
        "it is less than none: take 0 or more",
    ),
    (
        "tries are not less than none",
        {"spec.backoffLimit": -1},
        "spec.backoffLimit",
        "it is less than none: take 0 or more",
    ),
    *(
        (
            f"{field} is a time",
            {f"spec.{field}": 0},
            f"spec.{field}",
            "no job is as fast as that: take 1 or more, or remove it",
        )
        for field in ("activeDeadlineSeconds", "preRunningDeadlineSeconds")
    ),
    (
        "an ID is one that Ray can be asked for",
        {"spec.jobId": "nightly/1"},
        "spec.jobId",
        "Ray could not be asked for it: take letters, digits, - and _",
    ),
    (
        "an environment is YAML",
        {"spec.runtimeEnvYAML": "pip: [a"},
        "spec.runtimeEnvYAML",
        "this is no YAML: expected ',' or ']', but got '<stream end>' in line 1",
    ),
    (
        "an environment is a map",
        {"spec.runtimeEnvYAML": "- pip"},
        "spec.runtimeEnvYAML",
        "this is no map: it begins with a key and a colon",
    ),
    (
        "rules and the flag exclude each other",
        {**rules(("DeleteSelf", "FAILED", 0)), "spec.shutdownAfterJobFinishes": True},
        "spec.shutdownAfterJobFinishes",
        "deletionRules say what goes: remove one of the two",
    ),
    (
        "rules and the older pair exclude each other",
        {
            STRATEGY: {
                "deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}}],
                "onSuccess": {"policy": "DeleteSelf"},
            }
        },
        STRATEGY,
        "deletionRules and the deprecated onSuccess and onFailure exclude each other: keep the rules",
    ),
    (
        "the older pair is a pair",
        {STRATEGY: {"onSuccess": {"policy": "DeleteSelf"}}},
        f"{STRATEGY}.onFailure.policy",
        "without deletionRules it is needed, of both onSuccess and onFailure: better use deletionRules",
    ),
    (
        "there is a rule",
        rules(),
        f"{STRATEGY}.deletionRules",
        "there is no rule: give one, or remove deletionStrategy",
    ),
    (
        "a rule has one condition",
        {STRATEGY: {"deletionRules": [{"policy": "DeleteSelf", "condition": {}}]}},
        f"{STRATEGY}.deletionRules[0].condition",
        "it has either jobStatus or jobDeploymentStatus: name one of the two",
    ),
    (
        "the time of a rule is not less than none",
        rules(("DeleteSelf", "FAILED", -1)),
        f"{STRATEGY}.deletionRules[0].condition.ttlSeconds",
        "it is less than none: take 0 or more",
    ),
    (
        "a policy comes once for a condition",
        rules(("DeleteSelf", "FAILED", 1), ("DeleteSelf", "SUCCEEDED", 1), ("DeleteSelf", "FAILED", 2)),
        f"{STRATEGY}.deletionRules[2]",
        "deletionRules[0] has the same policy and condition: keep one of the two",
    ),
    (
        "the cluster does not go before its workers",
        rules(("DeleteCluster", "FAILED", 5), ("DeleteWorkers", "FAILED", 10)),
        f"{STRATEGY}.deletionRules[0].condition.ttlSeconds",
        f"after FAILED, DeleteCluster comes at 5 s and DeleteWorkers at 10 s{LATER} DeleteCluster come later",
    ),
    (
        "the job does not go before its workers",
        rules(("DeleteWorkers", "FAILED", 10), ("DeleteSelf", "FAILED", 9)),
        f"{STRATEGY}.deletionRules[1].condition.ttlSeconds",
        f"after FAILED, DeleteSelf comes at 9 s and DeleteWorkers at 10 s{LATER} DeleteSelf come later",
    ),
    *(
        (
            f"a cluster that is there is safe from {policy}",
            {**SELECTOR, CLUSTER: None, **rules((policy, "FAILED", 0))},
            f"{STRATEGY}.deletionRules[0].policy",
            f"{policy} would delete what clusterSelector names, and that is not this job's: take another policy",
        )
        for policy in ("DeleteCluster", "DeleteWorkers")
    ),
    (
        "a cluster that is there is safe from the older pair",
        {**SELECTOR, CLUSTER: None, **pair("DeleteCluster")},
        f"{STRATEGY}.onSuccess.policy",
        "DeleteCluster would delete what clusterSelector names, and that is not this job's: take another policy",
    ),
    (
        "workers that scale are not deleted",
        {**rules(("DeleteWorkers", "FAILED", 0)), f"{CLUSTER}.enableInTreeAutoscaling": True},
        f"{STRATEGY}.deletionRules[0].policy",
        "Ray's autoscaler would bring the workers back: take DeleteCluster, or switch autoscaling off",
    ),
    (
        "nothing goes, or something",
        {**pair("DeleteNone"), "spec.shutdownAfterJobFinishes": True},
        f"{STRATEGY}.onSuccess.policy",
        "DeleteNone and shutdownAfterJobFinishes exclude each other: remove one of the two",
    ),
    (
        "the cluster can be carried out",
        {f"{CLUSTER}.workerGroupSpecs.0.minReplicas": 9},
        f"{CLUSTER}.workerGroupSpecs[0].minReplicas",
        "9 is more than maxReplicas, which is 5: lower it, or raise maxReplicas",
    ),
    (
        "the cluster has no strategy of its own",
        {f"{CLUSTER}.upgradeStrategy": {"type": "Recreate"}},
        f"{CLUSTER}.upgradeStrategy.type",
        "a RayJob makes this cluster, and looks after its changes itself: remove upgradeStrategy",
    ),
    (
        "the cluster asks for no tokens of service accounts",
        {f"{CLUSTER}.authOptions": {"mode": "token", "enableK8sTokenAuth": True}},
        f"{CLUSTER}.authOptions.enableK8sTokenAuth",
        "it works in a RayCluster of its own only, and this is a RayJob: remove it",
    ),
]


@pytest.mark.parametrize(("edits", "path", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_of_a_job_is_refused(edits: Mapping[str, object], path: str, message: str) -> None:
    (problem,) = [one for one in job_problems(job(edits)) if one.path == path]
    assert problem.message == message
    assert problem.reason == ("InvalidRayJobMetadata" if path == "metadata.name" else "InvalidRayJobSpec")


ALLOWED: dict[str, Mapping[str, object]] = {
    "the longest name": {"metadata.name": "a" * 47},
    "waiting without a cluster": {"spec.suspend": True, "spec.shutdownAfterJobFinishes": True},
    "a time until the cluster goes": {"spec.ttlSecondsAfterFinished": 5, "spec.shutdownAfterJobFinishes": True},
    "a head that is not restarted": {
        "spec.submissionMode": "SidecarMode",
        f"{CLUSTER}.headGroupSpec.template.spec.restartPolicy": "Never",
    },
    "rules at the same time": rules(("DeleteCluster", "FAILED", 5), ("DeleteWorkers", "FAILED", 5)),
    "rules for different ends": rules(("DeleteCluster", "FAILED", 5), ("DeleteWorkers", "SUCCEEDED", 9)),
    "a job of a cluster that is there goes itself": {**SELECTOR, CLUSTER: None, **rules(("DeleteSelf", "FAILED", 5))},
    "the older pair with the flag": {**pair("DeleteCluster"), "spec.shutdownAfterJobFinishes": True},
    "an empty environment": {"spec.runtimeEnvYAML": "# nothing"},
}


@pytest.mark.parametrize("edits", ALLOWED.values(), ids=ALLOWED.keys())
def test_of_a_job_is_allowed(edits: Mapping[str, object]) -> None:
    assert job_problems(job(edits)) == ()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("job-")])
def test_samples_of_jobs_can_be_carried_out(name: str) -> None:
    assert job_problems(job(name=name)) == ()
