"""Pods of a RayCluster, beyond the command: names, labels, variables, volumes, probes, and what is beside Ray."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.ray.names import CREATED_BY
from gpu_control_plane.kube.json_patch import Json as AnyJson
from gpu_control_plane.ray.cluster.manifests import ClusterContext, ReplicaIdentity
from gpu_control_plane.ray.options import RayOptions
from unit.ray.ray_clusters import (
    UID,
    Json,
    container_of,
    env_of,
    gpu_pool,
    group,
    head_of,
    pools,
    ray_cluster,
    ray_of,
    template,
    worker_of,
)

SERVICE = {"ray.io/originated-from-crd": "RayService", "ray.io/originated-from-cr-name": "serving"}
HOST = "rc-head-svc.ns.svc.cluster.local"
SHARED, LOGS = "/dev/shm", "/tmp/ray"  # noqa: S108 - where Ray has them


def pods(*groups: Json, options: RayOptions | None = None, **rest: Any) -> tuple[Json, Json]:
    """The head, and the first worker of the first group."""
    cluster = ray_cluster(*(groups or (group(),)), **rest)
    context = ClusterContext(cluster=cluster, options=options or RayOptions())
    return head_of(context), worker_of(context)


# Names, labels, annotations


def test_pods_belong_to_their_cluster_and_the_api_server_completes_their_names() -> None:
    head, worker = pods(group("Small-Group", {"metadata": {"name": "mine"}, **template()}))
    for pod, name in ((head, "rc-head-"), (worker, "rc-small-group-worker-")):
        metadata = pod["metadata"]
        assert (metadata["generateName"], metadata["namespace"], metadata.get("name")) == (name, "ns", None)
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("RayCluster", UID, True)


def test_a_head_has_a_fixed_name_as_an_option() -> None:
    head, _ = pods(options=RayOptions(deterministic_head_name=True))
    assert (head["metadata"]["name"], head["metadata"].get("generateName")) == ("rc-head", None)


def test_labels_say_what_a_pod_is() -> None:
    head, worker = pods()
    common = {
        "ray.io/is-ray-node": "yes",
        "ray.io/cluster": "rc",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": CREATED_BY,
    }
    of_head = {"ray.io/node-type": "head", "ray.io/group": "headgroup", "ray.io/identifier": "rc-head"}
    of_worker = {
        "ray.io/node-type": "worker",
        "ray.io/group": "workers",
        "ray.io/identifier": "rc-worker",
        "ray.io/worker-group-replica-index": "0",
    }
    assert head["metadata"]["labels"] == {**common, **of_head}
    assert worker["metadata"]["labels"] == {**common, **of_worker}


def test_users_change_labels_except_those_by_which_pods_are_found() -> None:
    given_labels = {
        "app.kubernetes.io/name": "mine",
        "ray.io/cluster": "other",
        "ray.io/group": "other",
        "a": "template",
    }
    held = {**template(), "metadata": {"labels": {**given_labels, "ray.io/node-type": "head"}}}
    _, worker = pods(group("workers", held, labels={"a": "group"}))
    labels = worker["metadata"]["labels"]
    assert (labels["app.kubernetes.io/name"], labels["a"]) == ("mine", "group")
    assert (labels["ray.io/cluster"], labels["ray.io/group"], labels["ray.io/node-type"]) == ("rc", "workers", "worker")


def test_pods_of_a_service_say_whether_requests_may_come() -> None:
    head, worker = pods(labels=SERVICE)
    assert (head["metadata"]["labels"]["ray.io/serve"], worker["metadata"]["labels"]["ray.io/serve"]) == (
        "false",
        "true",
    )


def test_hosts_of_one_replica_know_their_place() -> None:
    cluster = ray_cluster(group(numOfHosts=4))
    pod = worker_of(ClusterContext(cluster=cluster), ReplicaIdentity(index=2, name="workers-ab12c", host=3))
    assert (
        pod["metadata"]["labels"].items()
        >= {
            "ray.io/worker-group-replica-index": "2",
            "ray.io/worker-group-replica-name": "workers-ab12c",
            "ray.io/replica-host-index": "3",
        }.items()
    )


def test_the_head_says_what_it_was_made_from() -> None:
    head, worker = pods(options=RayOptions(version="v9"))
    annotations = head["metadata"]["annotations"]
    assert (annotations["ray.io/ft-enabled"], annotations["ray.io/kuberay-version"]) == ("false", "v9")
    assert annotations["ray.io/upgrade-strategy-recreate-hash"]
    assert (
        annotations["gpu.deckhouse.io/template-hash"]
        != worker["metadata"]["annotations"]["gpu.deckhouse.io/template-hash"]
    )


def test_defaults_of_the_operator_give_way_to_users() -> None:
    options = RayOptions(
        default_pod_labels={"team": "default", "site": "default", "ray.io/cluster": "default"},
        default_pod_annotations={"note": "default", "other": "default"},
        default_container_envs=({"name": "A", "value": "default"}, {"name": "B", "value": "default"}),
    )
    held = {
        **template(env=[{"name": "A", "value": "mine"}]),
        "metadata": {"labels": {"team": "mine"}, "annotations": {"note": "mine"}},
    }
    _, worker = pods(group("workers", held), options=options)
    assert worker["metadata"]["labels"].items() >= {"team": "mine", "site": "default", "ray.io/cluster": "rc"}.items()
    assert worker["metadata"]["annotations"].items() >= {"note": "mine", "other": "default"}.items()
    assert env_of(ray_of(worker)).items() >= {"A": "mine", "B": "default"}.items()


def test_sidecars_of_the_operator_come_last() -> None:
    options = RayOptions(head_sidecars=({"name": "logs"},), worker_sidecars=({"name": "trace"},))
    head, worker = pods(options=options, enableInTreeAutoscaling=True)
    assert [held["name"] for held in head["spec"]["containers"]] == ["ray", "autoscaler", "logs"]
    assert [held["name"] for held in worker["spec"]["containers"]] == ["ray", "trace"]


@given(
    name=st.from_regex(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?", fullmatch=True),
    group_name=st.from_regex(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,61}[a-zA-Z0-9])?", fullmatch=True),
)
def test_names_and_labels_are_ones_that_kubernetes_takes(name: str, group_name: str) -> None:
    head, worker = pods(group(group_name), name=name)
    for pod in (head, worker):
        prefix = pod["metadata"]["generateName"]
        assert len(prefix) <= 58
        assert is_subdomain(f"{prefix}abcde")
        assert all(is_label_value(value) for value in pod["metadata"]["labels"].values())


def is_subdomain(name: str) -> bool:
    parts = name.split(".")
    return len(name) <= 253 and all(
        part and part[0].isalnum() and part[-1].isalnum() and set(part) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        for part in parts
    )


def is_label_value(value: str) -> bool:
    return len(value) <= 63 and (not value or (value[0].isalnum() and value[-1].isalnum()))


# Variables


def test_ray_is_told_where_it_is() -> None:
    head, worker = pods(options=RayOptions(version="v9"))
    fields = {held["name"]: held["valueFrom"] for held in ray_of(worker)["env"] if "valueFrom" in held}
    assert {name: source["fieldRef"]["fieldPath"] for name, source in fields.items()} == {
        "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
        "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
        "RAY_CLOUD_INSTANCE_ID": "metadata.name",
        "RAY_NODE_TYPE_NAME": "metadata.labels['ray.io/group']",
    }
    assert (
        env_of(ray_of(worker)).items()
        >= {
            "RAY_PORT": "6379",
            "RAY_ADDRESS": f"{HOST}:6379",
            "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
            "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
        }.items()
    )
    assert env_of(ray_of(head))["RAY_USAGE_STATS_EXTRA_TAGS"] == "kuberay_version=v9;kuberay_crd=RayCluster"
    assert not {"FQ_RAY_IP", "RAY_IP"} & env_of(ray_of(head)).keys()


def test_variables_of_the_user_stay_unless_they_are_ours_to_set() -> None:
    mine = [{"name": "RAY_ADDRESS", "value": "mine"}, {"name": "RAY_CLUSTER_NAME", "value": "mine"}]
    _, worker = pods(group("workers", template(env=mine)))
    env = ray_of(worker)["env"]
    assert env_of(ray_of(worker))["RAY_ADDRESS"] == "mine"
    assert [list(held) for held in env if held["name"] == "RAY_CLUSTER_NAME"] == [["name", "valueFrom"]]


def test_pods_of_a_service_notice_sooner_that_a_node_is_lost() -> None:
    head, worker = pods(labels=SERVICE)
    for pod in (head, worker):
        assert (
            env_of(ray_of(pod)).items()
            >= {
                "RAY_timeout_ms_task_wait_for_death_info": "0",
                "RAY_gcs_server_request_timeout_seconds": "5",
                "RAY_SERVE_KV_TIMEOUT_S": "5",
            }.items()
        )


def test_another_service_and_domain_are_where_the_head_is() -> None:
    cluster = ray_cluster(group(), head={"headService": {"metadata": {"name": "own"}}})
    pod = worker_of(ClusterContext(cluster=cluster, options=RayOptions(cluster_domain="example.org")))
    assert env_of(ray_of(pod))["FQ_RAY_IP"] == "own.ns.svc.example.org"


# Volumes


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        ({"limits": {"memory": "4Gi"}, "requests": {"memory": "1Gi"}}, "4Gi"),
        ({"requests": {"memory": "1Gi"}}, "1Gi"),
        ({}, None),
    ],
)
def test_ray_has_as_much_shared_memory_as_memory(resources: Json, size: str | None) -> None:
    _, worker = pods(group("workers", template(**resources)))
    volume = {"medium": "Memory", **({"sizeLimit": size} if size else {})}
    assert worker["spec"]["volumes"] == [{"name": "shared-mem", "emptyDir": volume}]
    assert ray_of(worker)["volumeMounts"] == [{"name": "shared-mem", "mountPath": SHARED}]


def test_shared_memory_of_the_user_stays() -> None:
    mounts = [{"name": "mine", "mountPath": SHARED}]
    _, mounted = pods(group("workers", template(volumeMounts=mounts)))
    _, elsewhere = pods(group(rayStartParams={"plasma-directory": "/objects"}))
    assert ray_of(mounted)["volumeMounts"] == mounts
    assert "volumes" not in elsewhere["spec"]


# Waiting for the head


def test_a_worker_waits_for_the_head() -> None:
    mine: Json = {
        "env": [{"name": "A", "value": "1"}],
        "securityContext": {"runAsUser": 1000},
        "imagePullPolicy": "Always",
    }
    held = template({"nvidia.com/gpu": 1}, **mine)
    held["spec"]["initContainers"] = [{"name": "first"}]
    _, worker = pods(group("workers", held))
    assert [each["name"] for each in worker["spec"]["initContainers"]] == ["first", "wait-gcs-ready"]
    waiting = container_of(worker, "wait-gcs-ready", "initContainers")
    assert f"ray health-check --address {HOST}:6379" in waiting["args"][0]
    assert waiting["resources"]["limits"] == {"cpu": "200m", "memory": "256Mi"} == waiting["resources"]["requests"]
    assert (waiting["securityContext"], waiting["imagePullPolicy"]) == ({"runAsUser": 1000}, "Always")
    for each in worker["spec"]["initContainers"]:
        assert env_of(each).items() >= {"FQ_RAY_IP": HOST, "RAY_IP": "rc-head-svc"}.items()
    assert env_of(waiting)["A"] == "1"
    assert "KUBERAY_GEN_RAY_START_CMD" not in env_of(waiting)


def test_waiting_and_probes_can_be_switched_off() -> None:
    head, worker = pods(options=RayOptions(init_container=False, probes=False))
    assert "initContainers" not in worker["spec"]
    assert all("livenessProbe" not in ray_of(pod) and "readinessProbe" not in ray_of(pod) for pod in (head, worker))


# Probes


def times(delay: int, timeout: int, failures: int) -> Json:
    return {
        "initialDelaySeconds": delay,
        "timeoutSeconds": timeout,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


RAYLET = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
GCS = "wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success"
SERVING = "wget --tries 1 -T 10 -q -O- http://localhost:8000/-/healthz | grep success"
HTTP = {"httpGet": {"path": "/api/healthz", "port": 52365}}


def run(*checks: str) -> Json:
    return {"exec": {"command": ["bash", "-c", " && ".join(checks)]}}


@pytest.mark.parametrize(
    ("version", "one"),
    [
        ("2.53.0", True),
        ("v2.60", True),
        ("3.0.0", True),
        ("2.53.0rc0", True),
        ("2.53.0.dev0", True),
        ("2.53.0+cu128", True),
        ("2.52.9", False),
        ("", False),
        ("nightly", False),
    ],
)
def test_probes_follow_the_version_of_ray(version: str, *, one: bool) -> None:
    head, worker = pods(rayVersion=version)
    of_head, of_worker = (HTTP, HTTP) if one else (run(RAYLET, GCS), run(RAYLET))
    assert ray_of(head)["livenessProbe"] == {**of_head, **times(30, 5, 120)}
    assert ray_of(head)["readinessProbe"] == {**of_head, **times(10, 5, 10)}
    assert ray_of(worker)["livenessProbe"] == {**of_worker, **times(30, 2, 120)}
    assert ray_of(worker)["readinessProbe"] == {**of_worker, **times(10, 2, 10)}


@pytest.mark.parametrize("version", ["2.53.0", "2.40.0"])
def test_a_worker_of_a_service_is_ready_when_its_proxy_answers(version: str) -> None:
    head, worker = pods(rayVersion=version, labels=SERVICE)
    assert ray_of(worker)["readinessProbe"] == {**run(RAYLET, SERVING), **times(10, 2, 1)}
    assert SERVING not in str(ray_of(head)["readinessProbe"])


def test_probes_ask_at_the_ports_that_the_user_names() -> None:
    ports = {"dashboard-agent-listen-port": "1111", "dashboard-port": "2222"}
    held = template(ports=[{"name": "serve", "containerPort": 3333}])
    head, worker = pods(group("workers", held, rayStartParams=ports), head={"rayStartParams": ports}, labels=SERVICE)
    assert ":1111/" in str(ray_of(head)["livenessProbe"])
    assert ":2222/" in str(ray_of(head)["livenessProbe"])
    assert ":3333/-/healthz" in str(ray_of(worker)["readinessProbe"])


def test_probes_of_the_user_stay() -> None:
    _, worker = pods(group("workers", template(livenessProbe={"mine": 1}, readinessProbe={"mine": 2})))
    assert (ray_of(worker)["livenessProbe"], ray_of(worker)["readinessProbe"]) == ({"mine": 1}, {"mine": 2})


# The autoscaler


def scaled(**options: Any) -> tuple[Json, Json]:
    return pods(enableInTreeAutoscaling=True, autoscalerOptions=options)


def test_the_autoscaler_is_beside_the_head_and_shares_its_logs() -> None:
    head, worker = scaled()
    container = container_of(head, "autoscaler")
    assert container["image"] == "rayproject/ray:2.52.0"
    assert container["command"] == ["/bin/bash", "-c", "--"]
    assert container["args"] == [
        "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
    ]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}
    assert head["spec"]["serviceAccountName"] == "rc"
    assert {"name": "ray-logs", "emptyDir": {}} in head["spec"]["volumes"]
    for each in (container, ray_of(head)):
        assert {"name": "ray-logs", "mountPath": LOGS} in each["volumeMounts"]
    assert {held["name"] for held in container["env"]} == {
        "RAY_CLUSTER_NAME",
        "RAY_CLUSTER_NAMESPACE",
        "RAY_HEAD_POD_NAME",
        "KUBERAY_CRD_VER",
        "KUBERAY_GEN_AUTOSCALER_START_CMD",
    }
    assert [held["name"] for held in worker["spec"]["containers"]] == ["ray"]
    assert not ({"RAY_enable_autoscaler_v2"} & env_of(ray_of(head)).keys())


@pytest.mark.parametrize(("version", "value", "policy"), [("v1", "false", "Always"), ("v2", "true", "Never")])
def test_the_version_of_the_autoscaler_is_told_to_ray(version: str, value: str, policy: str) -> None:
    held = template()
    held["spec"]["restartPolicy"] = "Always"
    head, worker = pods(
        group("workers", held),
        head={"template": held},
        enableInTreeAutoscaling=True,
        autoscalerOptions={"version": version},
    )
    assert env_of(ray_of(head))["RAY_enable_autoscaler_v2"] == value
    assert (head["spec"]["restartPolicy"], worker["spec"]["restartPolicy"]) == (policy, policy)


@pytest.mark.parametrize(("value", "policy"), [("1", "Never"), ("true", "Never"), ("0", "Always")])
def test_pods_of_version_2_by_variable_are_not_restarted_either(value: str, policy: str) -> None:
    held = template(env=[{"name": "RAY_enable_autoscaler_v2", "value": value}])
    worker = template()
    for each in (held, worker):
        each["spec"]["restartPolicy"] = "Always"
    made = pods(group("workers", worker), head={"template": held}, enableInTreeAutoscaling=True)
    assert [pod["spec"]["restartPolicy"] for pod in made] == [policy, policy]


def test_options_of_the_autoscaler_take_the_place_of_ours() -> None:
    head, _ = scaled(
        image="own/ray",
        imagePullPolicy="Always",
        resources={"limits": {"cpu": 1}},
        securityContext={"runAsNonRoot": True},
        command=["sh"],
        args=["-c", "$KUBERAY_GEN_AUTOSCALER_START_CMD"],
        env=[{"name": "KUBERAY_CRD_VER", "value": "v2"}, {"name": "A", "value": "1"}],
        envFrom=[{"secretRef": {"name": "s"}}],
        volumeMounts=[{"name": "m", "mountPath": "/m"}],
    )
    container = container_of(head, "autoscaler")
    assert (container["image"], container["imagePullPolicy"]) == ("own/ray", "Always")
    assert (container["command"], container["args"]) == (["sh"], ["-c", "$KUBERAY_GEN_AUTOSCALER_START_CMD"])
    assert container["resources"] == {"limits": {"cpu": 1}}
    assert container["securityContext"] == {"runAsNonRoot": True}
    assert container["envFrom"] == [{"secretRef": {"name": "s"}}]
    assert env_of(container).items() >= {"KUBERAY_CRD_VER": "v2", "A": "1"}.items()
    assert {held["name"] for held in container["volumeMounts"]} == {"m", "ray-logs"}


# Fault tolerance


def test_workers_outlive_a_head_whose_state_is_kept() -> None:
    _, worker = pods(annotations={"ray.io/ft-enabled": "true"})
    assert env_of(ray_of(worker))["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"
    _, plain = pods()
    assert "RAY_gcs_rpc_server_reconnect_timeout_s" not in env_of(ray_of(plain))


@pytest.mark.parametrize(
    ("options", "annotations", "prefix"),
    [
        ({"redisAddress": "r:1", "externalStorageNamespace": "named"}, {}, "named"),
        ({"redisAddress": "r:1"}, {"ray.io/external-storage-namespace": "noted"}, "noted"),
        ({"redisAddress": "r:1"}, {}, UID),
        (None, {"ray.io/ft-enabled": "True", "ray.io/external-storage-namespace": "noted"}, "noted"),
        (None, {"ray.io/ft-enabled": "true"}, UID),
    ],
)
def test_keys_in_redis_have_a_prefix(options: Json | None, annotations: dict[str, str], prefix: str) -> None:
    head, _ = pods(gcsFaultToleranceOptions=options, annotations=annotations)
    assert env_of(ray_of(head))["RAY_external_storage_namespace"] == prefix
    assert head["metadata"]["annotations"]["ray.io/external-storage-namespace"] == prefix
    assert head["metadata"]["annotations"]["ray.io/ft-enabled"] == "true"


def test_credentials_of_redis_may_come_from_a_secret() -> None:
    source = {"secretKeyRef": {"name": "redis", "key": "password"}}
    head, _ = pods(
        gcsFaultToleranceOptions={
            "redisAddress": "redis:6379",
            "redisUsername": {"value": "ray"},
            "redisPassword": {"valueFrom": source},
        }
    )
    assert {"name": "REDIS_PASSWORD", "valueFrom": source} in ray_of(head)["env"]
    command = env_of(ray_of(head))["KUBERAY_GEN_RAY_START_CMD"]
    assert "--redis-password=$REDIS_PASSWORD" in command
    assert "--redis-username=$REDIS_USERNAME" in command


def test_the_older_way_hands_the_password_to_the_cleanup() -> None:
    head, _ = pods(annotations={"ray.io/ft-enabled": "true"}, head={"rayStartParams": {"redis-password": "x"}})
    assert env_of(ray_of(head))["REDIS_PASSWORD"] == "x"
    assert "--redis-password=x" in env_of(ray_of(head))["KUBERAY_GEN_RAY_START_CMD"]


@pytest.mark.parametrize(("claim", "used"), [("", "rc-gcs-pvc"), ("mine", "mine")])
def test_rocksdb_is_on_a_volume_of_the_head(claim: str, used: str) -> None:
    storage = {"subPath": "a", **({"claimName": claim} if claim else {})}
    head, worker = pods(gcsFaultToleranceOptions={"backend": "rocksdb", "storage": storage})
    env = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": "/data/gcs"}
    assert env_of(ray_of(head)).items() >= env.items()
    assert {"name": "gcs-storage", "mountPath": "/data/gcs", "subPath": "a"} in ray_of(head)["volumeMounts"]
    assert {"name": "gcs-storage", "persistentVolumeClaim": {"claimName": used}} in head["spec"]["volumes"]
    assert "RAY_external_storage_namespace" not in env_of(ray_of(head))
    assert "gcs-storage" not in str(worker["spec"])


# Security and history


@pytest.mark.parametrize(("name", "secret"), [("", "rc"), ("own", "own")])
def test_callers_show_the_token_of_a_secret(name: str, secret: str) -> None:
    head, worker = pods(authOptions={"mode": "token", "secretName": name}, enableInTreeAutoscaling=True)
    key = {"secretKeyRef": {"name": secret, "key": "auth_token"}}
    for container in (
        ray_of(head),
        container_of(head, "autoscaler"),
        ray_of(worker),
        container_of(worker, "wait-gcs-ready", "initContainers"),
    ):
        assert {"name": "RAY_AUTH_TOKEN", "valueFrom": key} in container["env"]
        assert env_of(container)["RAY_AUTH_MODE"] == "token"


def test_callers_show_the_token_of_their_service_account() -> None:
    head, worker = pods(authOptions={"mode": "token", "enableK8sTokenAuth": True})
    for pod in (head, worker):
        assert env_of(ray_of(pod))["RAY_ENABLE_K8S_TOKEN_AUTH"] == "true"
        assert any(held["name"] == "ray-token" and "projected" in held for held in pod["spec"]["volumes"])
        mount = {"name": "ray-token", "mountPath": "/var/run/secrets/ray.io/serviceaccount", "readOnly": True}
        assert mount in ray_of(pod)["volumeMounts"]


@pytest.mark.parametrize("options", [None, {"mode": "disabled"}, {}])
def test_nobody_is_asked_for_a_token_unless_the_mode_says_so(options: Json | None) -> None:
    head, _ = pods(authOptions=options)
    assert "RAY_AUTH_MODE" not in env_of(ray_of(head))


def test_tls_reaches_every_container_that_talks_to_ray() -> None:
    head, worker = pods(tlsOptions={"enabled": True}, enableInTreeAutoscaling=True)
    for container in (
        ray_of(head),
        container_of(head, "autoscaler"),
        ray_of(worker),
        container_of(worker, "wait-gcs-ready", "initContainers"),
    ):
        assert (
            env_of(container).items()
            >= {
                "RAY_USE_TLS": "1",
                "RAY_TLS_SERVER_CERT": "/etc/ray/tls/tls.crt",
                "RAY_TLS_SERVER_KEY": "/etc/ray/tls/tls.key",
                "RAY_TLS_CA_CERT": "/etc/ray/tls/ca.crt",
            }.items()
        )
    for pod, secret in ((head, "ray-head-secret-rc"), (worker, "ray-worker-secret-rc")):
        assert {"name": "ray-tls", "secret": {"secretName": secret}} in pod["spec"]["volumes"]
        assert pod["spec"]["initContainers"][0]["name"] == "wait-for-tls-ip-san"


def test_history_is_collected_from_every_pod() -> None:
    collector = {"image": "collector", "env": [{"name": "STORAGE_BACKEND", "value": "s3"}]}
    head, worker = pods(historyServerOptions={"collectorOptions": collector}, labels=SERVICE)
    for pod, role in ((head, "Head"), (worker, "Worker")):
        container = container_of(pod, "ray-history-collector")
        assert (
            env_of(container).items()
            >= {
                "RAY_ROLE": role,
                "STORAGE_BACKEND": "s3",
                "FQ_RAY_IP": HOST,
                "OWNER_KIND": "RayService",
                "OWNER_NAME": "serving",
            }.items()
        )
        assert ("RAY_DASHBOARD_ADDRESS" in env_of(container)) == (role == "Head")
        assert {"name": "ray-logs", "mountPath": LOGS} in container["volumeMounts"]
        assert {"name": "ray-logs", "mountPath": LOGS} in ray_of(pod)["volumeMounts"]
        assert env_of(ray_of(pod))["RAY_enable_ray_event"] == "true"


# Placement

CARD = {"gpu.deckhouse.io/a": 1}


def affinity_of(worker: Json, *held: Any) -> AnyJson:
    cluster = ray_cluster(group("workers", worker))
    pod = worker_of(ClusterContext(cluster=cluster, gpus=pools(*held)))
    found: AnyJson = pod["spec"].get("affinity")
    return found


def test_workers_on_cards_of_a_pool_prefer_nodes_with_their_like() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"ray.io/cluster": "rc", "ray.io/group": "workers"}},
    }
    assert affinity_of(template(CARD), gpu_pool("a")) == {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]}
    }


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_what_the_user_says_of_other_pods_stands(kind: str) -> None:
    held = template(CARD)
    held["spec"]["affinity"] = {kind: {"mine": 1}}
    assert affinity_of(held, gpu_pool("a")) == {kind: {"mine": 1}}


def test_node_affinity_of_the_user_stays_beside_it() -> None:
    held = template(CARD)
    held["spec"]["affinity"] = {"nodeAffinity": {"mine": 1}}
    found = affinity_of(held, gpu_pool("a"))
    assert isinstance(found, dict)
    assert found["nodeAffinity"] == {"mine": 1}
    assert "podAffinity" in found


def test_no_worker_is_drawn_to_others_where_the_pool_spreads_or_there_is_none() -> None:
    spread = gpu_pool("a", scheduling={"strategy": "Spread", "topologyKey": "rack"})
    assert affinity_of(template(CARD), spread) is None
    assert affinity_of(template({"nvidia.com/gpu": 1}), gpu_pool("a")) is None
