"""What is refused of a RayCluster: rule by rule, with the sentence that its author reads."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.ray import RayCluster
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.rules.ray.cluster import cluster_problems
from gpu_control_plane.rules.ray.problem import Facts, sentences
from ray_samples import NAMES, changed, sample
from unit.ray.ray_clusters import group, ray_cluster

HEAD = "spec.headGroupSpec"
WORKER = "spec.workerGroupSpecs.0"
POD = "template.spec"
W0 = "spec.workerGroupSpecs[0]"
ENV = f"{HEAD}.{POD}.containers.0.env"
ENV_PATH = f"{HEAD}.{POD}.containers[0].env"
SCALING = {"spec.enableInTreeAutoscaling": True}
V2 = {**SCALING, "spec.autoscalerOptions": {"version": "v2"}}
REDIS = {"spec.gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}
ROCKSDB = {"spec.gcsFaultToleranceOptions": {"backend": "rocksdb"}}
OPTIONS = "spec.gcsFaultToleranceOptions"
POLICY = "spec.networkPolicy"
TLS: Mapping[str, object] = {"spec.tlsOptions": {"enabled": True}}


def env(name: str, value: str = "x") -> list[dict[str, str]]:
    return [{"name": name, "value": value}]


def cluster(edits: Mapping[str, object] | None = None, name: str = "cluster-minimal") -> RayCluster:
    return msgspec.convert(changed(name, edits or {}), RayCluster)


ROWS: list[tuple[str, Mapping[str, object], str, str]] = [
    (
        "a name is short enough for names made from it",
        {"metadata.name": "a" * 54},
        "metadata.name",
        "it has 54 characters, and names of pods and Services are made from it: take 53 at most",
    ),
    (
        "a name is one of a Service",
        {"metadata.name": "1st"},
        "metadata.name",
        "1st cannot be the name of a Service: take lower case letters, digits and -, and begin with a letter",
    ),
    (
        "the head has a container",
        {f"{HEAD}.{POD}.containers": []},
        f"{HEAD}.{POD}.containers",
        "there is none: the first one runs Ray",
    ),
    (
        "workers have a container",
        {f"{WORKER}.template": {}},
        f"{W0}.{POD}.containers",
        "there is none: the first one runs Ray",
    ),
    (
        "a template is one of a pod",
        {f"{WORKER}.template": {"spec": {"containers": "ray"}}},
        f"{W0}.template",
        "this is no template of a pod: Expected `array`, got `str` - at `$.spec.containers`",
    ),
    (
        "the name of a group is a label",
        {f"{WORKER}.groupName": "g" * 64},
        f"{W0}.groupName",
        "it has 64 characters, and is a label of its pods: take 63 at most",
    ),
    (
        "the name of a replica with several hosts is a label",
        {f"{WORKER}.groupName": "g" * 58, f"{WORKER}.numOfHosts": 2},
        f"{W0}.groupName",
        "it has 58 characters, and is a label of its pods: take 57 at most",
    ),
    (
        "the name of a group has letters that a label may have",
        {f"{WORKER}.groupName": "a b"},
        f"{W0}.groupName",
        "a b cannot be a label of its pods: take letters, digits, -, _ and .",
    ),
    (
        "a time to be idle can be read",
        {"metadata.annotations": {Annotation.IDLE_TIMEOUT.value: "30min"}},
        "metadata.annotations.gpu.deckhouse.io/idle-timeout",
        "'30min' is no time to be idle: write 90s, 5m or 1h30m",
    ),
    (
        "the fewest workers are not less than none",
        {f"{WORKER}.minReplicas": -1},
        f"{W0}.minReplicas",
        "-1 is less than none: take 0 or more",
    ),
    (
        "the most workers are not less than none",
        {f"{WORKER}.minReplicas": -2, f"{WORKER}.maxReplicas": -1},
        f"{W0}.maxReplicas",
        "-1 is less than none: take 0 or more",
    ),
    (
        "the fewest are not more than the most",
        {f"{WORKER}.minReplicas": 6},
        f"{W0}.minReplicas",
        "6 is more than maxReplicas, which is 5: lower it, or raise maxReplicas",
    ),
    (
        "the resources of a group are said once",
        {f"{WORKER}.resources": {"CPU": "1"}, f"{WORKER}.rayStartParams": {"num-gpus": "1"}},
        f"{W0}.rayStartParams.num-gpus",
        "workerGroupSpecs[0].resources says it already: keep one of the two",
    ),
    (
        "labels are no parameter",
        {f"{HEAD}.rayStartParams": {"labels": "a=b"}},
        f"{HEAD}.rayStartParams.labels",
        "labels are given in the field labels of the group: move them there",
    ),
    (
        "labels have keys of Kubernetes",
        {f"{WORKER}.labels": {"a b": "c"}},
        f"{W0}.labels",
        "'a b' is no key of a label: at most 63 letters, digits, -, _ and ., perhaps after a domain/",
    ),
    (
        "labels have values of Kubernetes",
        {f"{WORKER}.labels": {"team": "a b"}},
        f"{W0}.labels.team",
        "'a b' is no value of a label: at most 63 letters, digits, -, _ and .",
    ),
    (
        "a group's timeout is not less than none",
        {**V2, f"{WORKER}.idleTimeoutSeconds": -1},
        f"{W0}.idleTimeoutSeconds",
        "it is less than none: take 0 or more",
    ),
    (
        "a group's timeout needs autoscaler v2",
        {**SCALING, f"{WORKER}.idleTimeoutSeconds": 5},
        f"{W0}.idleTimeoutSeconds",
        "only autoscaler v2 reads it: set autoscalerOptions.version to v2, or remove it",
    ),
    (
        "a group's priority needs autoscaler v2",
        {**SCALING, f"{WORKER}.priority": 5},
        f"{W0}.priority",
        "only autoscaler v2 reads it: set autoscalerOptions.version to v2, or remove it",
    ),
    (
        "a group's priority needs a Ray that knows it",
        {**V2, f"{WORKER}.priority": 5, "spec.rayVersion": "2.55.1"},
        f"{W0}.priority",
        "it needs rayVersion 2.56.0 or later, and that is 2.55.1",
    ),
    (
        "the autoscaler's timeout is not less than none",
        {**SCALING, "spec.autoscalerOptions": {"idleTimeoutSeconds": -1}},
        "spec.autoscalerOptions.idleTimeoutSeconds",
        "it is less than none: take 0 or more",
    ),
    (
        "v2 by the environment needs autoscaling",
        {ENV: env("RAY_enable_autoscaler_v2", "true")},
        ENV_PATH,
        "RAY_enable_autoscaler_v2 is set, and enableInTreeAutoscaling is not: set that, too",
    ),
    (
        "the version is said once",
        {**V2, ENV: env("RAY_enable_autoscaler_v2", "0")},
        ENV_PATH,
        "RAY_enable_autoscaler_v2 and autoscalerOptions.version say the same: keep version",
    ),
    (
        "v2 restarts no pod",
        {**V2, f"{WORKER}.{POD}.restartPolicy": "Always"},
        f"{W0}.{POD}.restartPolicy",
        "autoscaler v2 replaces pods and must not have them restarted: set Never instead of Always",
    ),
    (
        "v2 by the environment restarts no pod either",
        {**SCALING, ENV: env("RAY_enable_autoscaler_v2", "1"), f"{HEAD}.{POD}.restartPolicy": "OnFailure"},
        f"{HEAD}.{POD}.restartPolicy",
        "autoscaler v2 replaces pods and must not have them restarted: set Never instead of OnFailure",
    ),
    (
        "a suspended group does not scale",
        {**SCALING, f"{WORKER}.suspend": True},
        f"{W0}.suspend",
        "Ray's autoscaler would bring the workers back: switch enableInTreeAutoscaling off, or take suspend away",
    ),
    (
        "the autoscaler's start command is made",
        {**SCALING, "spec.autoscalerOptions": {"env": env("KUBERAY_GEN_AUTOSCALER_START_CMD")}},
        "spec.autoscalerOptions.env",
        "KUBERAY_GEN_AUTOSCALER_START_CMD is made here: call yours something else",
    ),
    (
        "fault tolerance is said once",
        {**REDIS, "metadata.annotations": {"ray.io/ft-enabled": "false"}},
        "metadata.annotations",
        "ray.io/ft-enabled is the older form of spec.gcsFaultToleranceOptions: remove it",
    ),
    (
        "the prefix of keys is said once",
        {**REDIS, "metadata.annotations": {"ray.io/external-storage-namespace": "a"}},
        "metadata.annotations",
        "ray.io/external-storage-namespace is the older form of spec.gcsFaultToleranceOptions: remove it",
    ),
    (
        "an address of Redis needs fault tolerance",
        {ENV: env("RAY_REDIS_ADDRESS")},
        ENV_PATH,
        "RAY_REDIS_ADDRESS is set and fault tolerance is off: use gcsFaultToleranceOptions.redisAddress instead",
    ),
    (
        "with options the address is one of them",
        {**REDIS, ENV: env("RAY_REDIS_ADDRESS")},
        ENV_PATH,
        "RAY_REDIS_ADDRESS is told by gcsFaultToleranceOptions.redisAddress: move it there",
    ),
    (
        "with options the password is one of them",
        {**REDIS, ENV: env("REDIS_PASSWORD")},
        ENV_PATH,
        "REDIS_PASSWORD is told by gcsFaultToleranceOptions.redisPassword: move it there",
    ),
    (
        "with options the password is no parameter",
        {**REDIS, f"{HEAD}.rayStartParams": {"redis-password": "x"}},
        f"{HEAD}.rayStartParams.redis-password",
        "it is told by gcsFaultToleranceOptions.redisPassword: move it there",
    ),
    (
        "a user name is never a parameter",
        {f"{HEAD}.rayStartParams": {"redis-username": "x"}},
        f"{HEAD}.rayStartParams.redis-username",
        "it is told by gcsFaultToleranceOptions.redisUsername: move it there",
    ),
    (
        "a user name is never in the environment",
        {ENV: env("REDIS_USERNAME")},
        ENV_PATH,
        "REDIS_USERNAME is told by gcsFaultToleranceOptions.redisUsername: move it there",
    ),
    (
        "Redis needs no volume",
        {OPTIONS: {"redisAddress": "redis:6379", "storage": {"size": "1Gi"}}},
        f"{OPTIONS}.storage",
        "Redis keeps the state, and needs no volume: remove it, or set backend to rocksdb",
    ),
    *(
        (
            f"rocksdb has no {field}",
            {OPTIONS: {"backend": "rocksdb", field: value}},
            f"{OPTIONS}.{field}",
            "it is for Redis, and the backend is rocksdb: remove it",
        )
        for field, value in (
            ("redisAddress", "redis:6379"),
            ("redisUsername", {"value": "x"}),
            ("redisPassword", {"value": "x"}),
            ("externalStorageNamespace", "a"),
        )
    ),
    *(
        (
            f"a claim that is there has its {field}",
            {OPTIONS: {"backend": "rocksdb", "storage": {"claimName": "mine", field: value}}},
            f"{OPTIONS}.storage.{field}",
            "it belongs to the claim mine, which is there: remove it",
        )
        for field, value in (("size", "1Gi"), ("storageClassName", "fast"), ("accessModes", ["ReadWriteOnce"]))
    ),
    (
        "where rocksdb keeps its files is ours to say",
        {**ROCKSDB, ENV: env("RAY_gcs_storage_path")},
        ENV_PATH,
        "RAY_gcs_storage_path is set from gcsFaultToleranceOptions: remove it",
    ),
    (
        "the volume of rocksdb has its name",
        {**ROCKSDB, f"{HEAD}.{POD}.volumes": [{"name": "gcs-storage"}]},
        f"{HEAD}.{POD}.volumes",
        "gcs-storage is the name of the volume of the state: call yours something else",
    ),
    (
        "the volume of rocksdb has its path",
        {**ROCKSDB, f"{HEAD}.{POD}.containers.0.volumeMounts": [{"name": "a", "mountPath": "/data/gcs/"}]},
        f"{HEAD}.{POD}.containers[0].volumeMounts",
        "/data/gcs is where the volume gcs-storage of the state is mounted: take another path",
    ),
    (
        "tokens need a Ray that knows them",
        {"spec.authOptions": {"mode": "token"}, "spec.rayVersion": "2.51.9"},
        "spec.authOptions.mode",
        "token needs Ray 2.52.0 or later, and rayVersion is 2.51.9",
    ),
    (
        "tokens need a version of Ray",
        {"spec.authOptions": {"mode": "token"}, "spec.rayVersion": None},
        "spec.authOptions.mode",
        "token needs Ray 2.52.0 or later, and rayVersion is not given",
    ),
    (
        "tokens of service accounts need a Ray that knows them",
        {"spec.authOptions": {"mode": "token", "enableK8sTokenAuth": True}, "spec.rayVersion": "2.54.0"},
        "spec.authOptions.enableK8sTokenAuth",
        "it needs Ray 2.55.0 or later, and rayVersion is 2.54.0",
    ),
    (
        "tokens of service accounts are tokens",
        {"spec.authOptions": {"enableK8sTokenAuth": True}},
        "spec.authOptions.enableK8sTokenAuth",
        "it needs the mode token: set authOptions.mode",
    ),
    (
        "tokens of service accounts are in no Secret",
        {"spec.authOptions": {"mode": "token", "enableK8sTokenAuth": True, "secretName": "a"}},
        "spec.authOptions.secretName",
        "with enableK8sTokenAuth no Secret is read: remove one of the two",
    ),
    (
        "what nobody refuses is not allowed by rules: ingress",
        {POLICY: {"mode": "DenyAllEgress", "head": {"ingressRules": [{}]}}},
        f"{POLICY}.head.ingressRules",
        "DenyAllEgress lets everybody in already: remove them, or set mode to DenyAll",
    ),
    (
        "what nobody refuses is not allowed by rules: egress",
        {POLICY: {"mode": "DenyAllIngress", "worker": {"egressRules": [{}]}}},
        f"{POLICY}.worker.egressRules",
        "DenyAllIngress lets everything out already: remove them, or set mode to DenyAll",
    ),
    (
        "rules are for groups that are there",
        {POLICY: {"workerGroups": [{"groupName": "large"}]}},
        f"{POLICY}.workerGroups[0].groupName",
        "there is no worker group large: there is small",
    ),
    (
        "a NetworkPolicy can be named after a group",
        {POLICY: {}, f"{WORKER}.groupName": "Small_one"},
        f"{W0}.groupName",
        "a NetworkPolicy is named after 'Small_one': take at most 63 lower case letters, digits and -",
    ),
    (
        "TLS is ours to switch on",
        {**TLS, f"{WORKER}.{POD}.containers.0.env": env("RAY_TLS_SERVER_CERT")},
        f"{W0}.{POD}.containers[0].env",
        "RAY_TLS_SERVER_CERT is set where tlsOptions is enabled: remove it",
    ),
    (
        "the volume of certificates has its name",
        {**TLS, f"{HEAD}.{POD}.volumes": [{"name": "ray-tls"}]},
        f"{HEAD}.{POD}.volumes",
        "ray-tls is the name of the volume of certificates: call yours otherwise",
    ),
    (
        "the volume of certificates has its path",
        {**TLS, f"{HEAD}.{POD}.containers.0.volumeMounts": [{"name": "a", "mountPath": "/etc/ray/tls"}]},
        f"{HEAD}.{POD}.containers[0].volumeMounts",
        "certificates are mounted at /etc/ray/tls from the volume ray-tls: take another path",
    ),
    (
        "the collector has an image",
        {"spec.historyServerOptions": {"collectorOptions": {"env": env("STORAGE_BACKEND")}}},
        "spec.historyServerOptions.collectorOptions.image",
        "it is needed: name the image of the collector",
    ),
    (
        "the collector knows where to",
        {"spec.historyServerOptions": {"collectorOptions": {"image": "a"}}},
        "spec.historyServerOptions.collectorOptions.env",
        "STORAGE_BACKEND is needed: it says where logs are kept",
    ),
    (
        "a claim is a map, as all that manifests are made from",
        {f"{WORKER}.{POD}.resourceClaims": ["cards"]},
        f"{W0}.template",
        "this is no template of a pod: Expected `object`, got `str` - at `$.spec.resourceClaims[0]`",
    ),
    (
        "the head's Service is one",
        {f"{HEAD}.headService": {"spec": {"ports": [80]}}},
        f"{HEAD}.headService",
        "this is no Service: Expected `object`, got `int` - at `$.spec.ports[0]`",
    ),
    (
        "a group of workers has not the name of the head's",
        {f"{WORKER}.groupName": "headgroup"},
        "spec.workerGroupSpecs[0].groupName",
        "headgroup is the name of the head's own group: take another",
    ),
    (
        "a cluster that a RayService made has no strategy of its own",
        {
            "metadata.labels": {Label.ORIGINATED_FROM_KIND.value: "RayService"},
            "spec.upgradeStrategy": {"type": "Recreate"},
        },
        "spec.upgradeStrategy.type",
        "a RayService makes this cluster, and looks after its changes itself: remove upgradeStrategy",
    ),
]


@pytest.mark.parametrize(("edits", "path", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_of_a_cluster_is_refused(edits: Mapping[str, object], path: str, message: str) -> None:
    (problem,) = [one for one in cluster_problems(cluster(edits)) if one.path == path]
    assert problem.message == message
    assert problem.reason == ("InvalidRayClusterMetadata" if path == "metadata.name" else "InvalidRayClusterSpec")


ALLOWED: dict[str, Mapping[str, object]] = {
    "the longest name": {"metadata.name": "a" * 53},
    "a name that the API server has still to make": {"metadata.name": None, "metadata.generateName": "ray-"},
    "no bound where Ray scales": {**SCALING, f"{WORKER}.minReplicas": None},
    "as many as there may be": {f"{WORKER}.minReplicas": 5},
    "resources beside other parameters": {
        f"{WORKER}.resources": {"CPU": "1"},
        f"{WORKER}.rayStartParams": {"object-store-memory": "100"},
    },
    "a group's timeout of none": {**V2, f"{WORKER}.idleTimeoutSeconds": 0},
    "priority zero anywhere": {f"{WORKER}.priority": 0},
    "v1 with pods that are restarted": {
        **SCALING,
        "spec.autoscalerOptions": {"version": "v1"},
        f"{WORKER}.{POD}.restartPolicy": "Always",
    },
    "v2 for later, without autoscaling": {"spec.autoscalerOptions": {"version": "v2"}},
    "v2 switched off by the environment": {ENV: env("RAY_enable_autoscaler_v2", "0")},
    "a suspended group": {f"{WORKER}.suspend": True},
    "the older fault tolerance": {
        "metadata.annotations": {"ray.io/ft-enabled": "true", "ray.io/external-storage-namespace": "a"},
        ENV: env("RAY_REDIS_ADDRESS"),
    },
    "authentication switched off with any Ray": {"spec.authOptions": {"mode": "disabled"}, "spec.rayVersion": "2.9.0"},
    "a pre-release that knows tokens": {"spec.authOptions": {"mode": "token"}, "spec.rayVersion": "2.52.0rc0"},
    "TLS switched off with the user's own": {"spec.tlsOptions": {"enabled": False}, ENV: env("RAY_USE_TLS")},
    "a strategy of its own": {"spec.upgradeStrategy": {"type": "Recreate"}},
}


@pytest.mark.parametrize("edits", ALLOWED.values(), ids=ALLOWED.keys())
def test_of_a_cluster_is_allowed(edits: Mapping[str, object]) -> None:
    assert cluster_problems(cluster(edits)) == ()


def test_groups_have_different_names() -> None:
    spec: dict[str, Any] = sample("cluster-autoscaler-v2")["spec"]
    spec["workerGroupSpecs"][1]["groupName"] = "reserved"
    found = cluster_problems(cluster({"spec": spec}))
    assert sentences(found) == (
        "spec.workerGroupSpecs[1].groupName: reserved is the name of workerGroupSpecs[0], too, and pods are told apart "
        "by it: give each group a name of its own."
    )


def test_bounds_are_needed_where_ray_does_not_scale() -> None:
    spec = cluster().spec
    group = msgspec.structs.replace(spec.worker_group_specs[0], max_replicas=None)
    held = msgspec.structs.replace(cluster(), spec=msgspec.structs.replace(spec, worker_group_specs=(group,)))
    assert [str(one) for one in cluster_problems(held)] == [
        "spec.workerGroupSpecs[0].maxReplicas: it is needed where Ray does not scale by itself: give a number"
    ]


def test_tls_needs_cert_manager() -> None:
    (problem,) = cluster_problems(cluster(TLS), Facts(cert_manager=False))
    assert str(problem) == (
        "spec.tlsOptions.enabled: certificates come from cert-manager, which is not there: install it first"
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cluster-")])
def test_samples_of_clusters_can_be_carried_out(name: str) -> None:
    assert cluster_problems(cluster(name=name)) == ()


def test_a_cluster_has_no_more_groups_than_can_be_looked_at() -> None:
    (problem,) = cluster_problems(ray_cluster(*(group(f"g{index}") for index in range(501))))
    assert str(problem) == "spec.workerGroupSpecs: there are 501 groups: take 500 at most"
    assert not cluster_problems(ray_cluster(*(group(f"g{index}") for index in range(500))))
