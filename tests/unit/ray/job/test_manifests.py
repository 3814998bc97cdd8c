"""What is made for a RayJob: its cluster, its submitter, and the Service that stays."""

import json
import shlex
import subprocess
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpu_control_plane.api.ray.cluster import RayClusterSpec
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.dashboard.errors import NotSent
from gpu_control_plane.ray.job.manifests import (
    follow_script,
    job_head_service,
    ray_cluster,
    submitter_job,
    suspended_workers,
)
from gpu_control_plane.ray.job.submission import submission
from gpu_control_plane.ray.scheduling import PodSchedulingFields
from unit.ray.job.builders import CLUSTER_SPEC, cluster, job

ADDRESS = "demo-x1-head-svc.team.svc.cluster.local:8265"


def running(**spec: Any) -> Any:
    return job("Initializing", spec=spec, dashboardURL=ADDRESS)


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {held["name"]: held.get("value", held.get("valueFrom")) for held in container["env"]}


def test_the_cluster_carries_the_labels_and_annotations_of_the_job_and_whose_it_is() -> None:
    metadata = {
        "labels": {"kueue.x-k8s.io/queue-name": "q"},
        "annotations": {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    made = ray_cluster(job("Initializing", metadata=metadata))
    assert made["metadata"]["name"] == "demo-x1"
    assert made["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "q",
        "ray.io/originated-from-cr-name": "demo",
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/job-submission-mode": "K8sJobMode",
    }
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
    assert made["spec"]["headGroupSpec"] == CLUSTER_SPEC["headGroupSpec"]


def test_the_submitter_is_a_job_of_the_rayjobs_name_with_the_heads_image() -> None:
    made = submitter_job(running(), cluster())
    assert (made["metadata"]["name"], made["spec"]["backoffLimit"]) == ("demo", 2)
    assert made["metadata"]["labels"]["app.kubernetes.io/created-by"] == "kuberay-operator"
    pod = made["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    container = pod["containers"][0]
    assert (container["name"], container["image"], container["command"]) == (
        "ray-job-submitter",
        "ray:2.60",
        ["/bin/bash", "-ce", "--"],
    )
    assert container["resources"] == {
        "requests": {"cpu": "500m", "memory": "200Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    assert environment(container) == {
        "PYTHONUNBUFFERED": "1",
        "RAY_DASHBOARD_ADDRESS": ADDRESS,
        "RAY_JOB_SUBMISSION_ID": "demo-x1",
    }


def test_the_submitter_pulls_its_image_as_the_head_does() -> None:
    """Where there is no registry, an image that the head has on its node would be looked for in vain."""
    head = {"name": "ray-head", "image": "ray:latest", "imagePullPolicy": "Never"}
    given = cluster()
    spec = replace(given.spec.head_group_spec, template={"spec": {"containers": [head]}})
    given = replace(given, spec=replace(given.spec, head_group_spec=spec))
    assert submitter_job(running(), given)["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Never"


def test_a_submitter_with_a_command_keeps_it_and_one_without_gets_ours() -> None:
    own = {"spec": {"containers": [{"name": "mine", "image": "i", "command": ["run"], "args": ["x"]}]}}
    container = submitter_job(running(submitterPodTemplate=own), cluster())["spec"]["template"]["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["run"], ["x"])
    assert environment(container)["RAY_JOB_SUBMISSION_ID"] == "demo-x1"
    bare = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "mine", "image": "i", "args": ["x"]}]}}
    template = submitter_job(running(submitterPodTemplate=bare), cluster())["spec"]["template"]
    assert template["spec"]["restartPolicy"] == "OnFailure"
    assert "ray job submit" in template["spec"]["containers"][0]["args"][0]
    assert "name" in bare["spec"]["containers"][0]  # the RayJob itself is left as it was


def test_the_submitter_has_the_limit_of_its_user_and_the_marks_of_a_batch_scheduler() -> None:
    scheduling_fields = PodSchedulingFields(scheduler_name="volcano", labels={"l": "1"}, annotations={"a": "1"})
    made = submitter_job(running(submitterConfig={"backoffLimit": 0}), cluster(), scheduling_fields)
    assert made["spec"]["backoffLimit"] == 0
    template = made["spec"]["template"]
    assert template["spec"]["schedulerName"] == "volcano"
    assert template["metadata"]["labels"]["l"] == "1"
    assert template["metadata"]["annotations"] == {"a": "1"}


def test_a_submitter_shows_the_token_of_its_cluster() -> None:
    secured = replace(cluster(), spec=ray_spec(authOptions={"mode": "token"}))
    container = submitter_job(running(), secured)["spec"]["template"]["spec"]["containers"][0]
    assert environment(container)["RAY_AUTH_TOKEN"] == {"secretKeyRef": {"name": "demo-x1", "key": "auth_token"}}
    assert environment(container)["RAY_AUTH_MODE"] == "token"


def ray_spec(**more: Any) -> Any:
    return msgspec.convert({**CLUSTER_SPEC, **more}, RayClusterSpec)


def test_the_script_waits_submits_once_and_follows_the_log() -> None:
    lines = follow_script(
        running(
            runtimeEnvYAML='pip: [torch]\nenv_vars: {A: "it\'s"}\n',
            metadata={"team": "a b"},
            entrypointNumCpus=2,
            entrypointNumGpus=0.5,
            entrypointResources='{"Custom-1": 1}',
        )
    ).splitlines()
    assert lines[0].startswith("until ")
    assert lines[1].startswith("if ! ray job status --address http://$RAY_DASHBOARD_ADDRESS")
    words = shlex.split(lines[2])
    assert words[:6] == ["ray", "job", "submit", "--address", "http://$RAY_DASHBOARD_ADDRESS", "--no-wait"]
    options = dict(zip(words[6:-3:2], words[7:-3:2], strict=True))
    assert json.loads(options["--runtime-env-json"]) == {"pip": ["torch"], "env_vars": {"A": "it's"}}
    assert json.loads(options["--metadata-json"]) == {"team": "a b"}
    assert json.loads(options["--entrypoint-resources"]) == {"Custom-1": 1}
    assert (options["--entrypoint-num-cpus"], options["--entrypoint-num-gpus"]) == ("2", "0.5")
    assert options["--submission-id"] == "$RAY_JOB_SUBMISSION_ID"
    assert words[-3:] == ["--", "python", "job.py"]
    assert lines[4] == 'ray job logs --address http://$RAY_DASHBOARD_ADDRESS --follow "$RAY_JOB_SUBMISSION_ID"'


def test_what_is_json_reaches_ray_as_it_is_written() -> None:
    """Neither the kubelet nor the shell makes something else of it."""
    text = "a$$b $(HOME) $HOME `id` \\ ' \" ; $"
    script = follow_script(running(runtimeEnvYAML=json.dumps({"env_vars": {"A": text}}), metadata={"a": text}))
    submit = script.replace("$$", "$").splitlines()[2]  # what the kubelet does
    done = subprocess.run(
        ["/bin/bash", "-c", f'ray() {{ printf "%s\\0" "$@"; }}; {submit}'], capture_output=True, text=True, check=True
    )
    words = done.stdout.split("\0")
    assert json.loads(words[words.index("--runtime-env-json") + 1]) == {"env_vars": {"A": text}}
    assert json.loads(words[words.index("--metadata-json") + 1]) == {"a": text}


def test_a_sidecar_submits_from_beside_the_head_which_is_not_made_anew() -> None:
    made = ray_cluster(running(submissionMode="SidecarMode"))
    assert made["metadata"]["annotations"] == {"ray.io/disable-provisioned-head-restart": "true"}
    pod = made["spec"]["headGroupSpec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert [container["name"] for container in pod["containers"]] == ["ray-head", "ray-job-submitter"]
    sidecar = pod["containers"][1]
    assert environment(sidecar)["RAY_DASHBOARD_ADDRESS"] == "127.0.0.1:8265"
    assert "--no-wait" not in sidecar["args"][0]
    assert "ray job logs" not in sidecar["args"][0]
    assert len(CLUSTER_SPEC["headGroupSpec"]["template"]["spec"]["containers"]) == 1


def test_the_service_of_a_job_has_its_name_and_points_to_the_head_of_the_cluster() -> None:
    made = job_head_service(running(), ClusterContext(cluster=cluster()))
    assert made["metadata"]["name"] == "demo-head-svc"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "RayJob"
    assert made["metadata"]["labels"] == {
        "ray.io/originated-from-cr-name": "demo",
        "ray.io/originated-from-crd": "RayJob",
        "app.kubernetes.io/created-by": "kuberay-operator",
        "ray.io/node-type": "head",
        "ray.io/identifier": "demo-head",
    }
    assert made["spec"]["selector"]["ray.io/cluster"] == "demo-x1"
    assert {port["name"] for port in made["spec"]["ports"]} >= {"dashboard", "client"}


def test_workers_are_suspended_without_losing_anything_of_their_groups() -> None:
    given = cluster()
    groups = suspended_workers(given)
    assert [group["suspend"] for group in groups] == [True]
    assert groups[0]["template"] == CLUSTER_SPEC["workerGroupSpecs"][0]["template"]


def test_the_operator_submits_the_same_as_the_script() -> None:
    made = submission(
        running(
            submissionMode="HTTPMode",
            runtimeEnvYAML="pip: [torch]",
            metadata={"team": "a"},
            entrypointNumGpus=1,
            entrypointResources='{"Custom-1": 1}',
        )
    )
    assert (made.entrypoint, made.submission_id) == ("python job.py", "demo-x1")
    assert (made.runtime_env, made.metadata) == ({"pip": ["torch"]}, {"team": "a"})
    assert (made.entrypoint_num_gpus, made.entrypoint_resources) == (1, {"Custom-1": 1})


@pytest.mark.parametrize("spec", [{"runtimeEnvYAML": "a: ["}, {"runtimeEnvYAML": "x"}, {"entrypointResources": "{"}])
def test_what_is_no_yaml_or_json_is_a_sentence(spec: dict[str, str]) -> None:
    with pytest.raises(NotSent, match=r"spec\."):
        submission(running(**spec))
