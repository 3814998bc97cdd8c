"""What samples of RayClusters become that show what pods are like."""

import re
from collections.abc import Mapping
from typing import Any, Final

from integration.ray.expected.checks import ABSENT, GI, POOL_SERVES, READY, UNLIMITED, ExpectedCluster, Json, Pods
from integration.ray.expected.sample import Sample

_HALF_AUTOSCALER: Final = {"cpu": "500m", "memory": "512Mi"}

_LOGS: Final = {"ray-logs": {"mountPath": "/tmp/ray"}}  # noqa: S108 - where Ray writes its logs

_RAY: Final = "registry.example.com/ray:2.60.0"


def autoscaler_objects() -> Mapping[str, Json]:
    """What the autoscaler may do, and as whom."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
    ]
    return {
        "ServiceAccount/{name}": {},
        "Role/{name}": {"rules": rules},
        "RoleBinding/{name}": {
            "roleRef": {"kind": "Role", "name": "{name}"},
            "subjects": {"{name}": {"kind": "ServiceAccount", "namespace": "{namespace}"}},
        },
    }


def autoscaler(**container: Any) -> Json:
    """Its container beside the head's."""
    command = "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
    usual = {
        "image": _RAY,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/bash", "-c", "--"],
        "args": [command],
        "resources": {"limits": _HALF_AUTOSCALER, "requests": _HALF_AUTOSCALER},
        "volumeMounts": _LOGS,
    }
    env = {
        "RAY_CLUSTER_NAME": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}},
        "RAY_CLUSTER_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "RAY_HEAD_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "KUBERAY_CRD_VER": "v1",
        "KUBERAY_GEN_AUTOSCALER_START_CMD": command,
        **container.pop("env", {}),
    }
    return {"autoscaler": {**usual, "env": env, **container}}


PODS: Final[Mapping[str, Sample]] = {
    "cluster-minimal": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--memory=2147483648", "--num-cpus=1"),
                spec={"volumes": {"shared-mem": {"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}}},
                ray={"image": _RAY, "volumeMounts": {"shared-mem": {"mountPath": "/dev/shm"}}},  # noqa: S108
                annotations={"ray.io/ft-enabled": "false"},
            ),
            groups={
                "small": Pods(
                    start=("--memory=1073741824", "--num-cpus=1"),
                    spec={
                        "volumes": {"shared-mem": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}},
                        "initContainers": {
                            "wait-gcs-ready": {
                                "image": _RAY,
                                "env": {"RAY_IP": "minimal-head-svc"},
                                "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}},
                            }
                        },
                    },
                )
            },
            desired=("1500m", 3 * GI, "0", "0"),
            bounds=(1, 5),
        )
    ),
    "cluster-full": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--memory=8589934592", "--num-cpus=0"),
                containers=("ray-head", "log-reader"),
                env={
                    "RAY_LOG_TO_STDERR": "1",
                    "DATA_TOKEN": {"secretKeyRef": {"name": "data", "key": "token", "optional": True}},
                },
                ray={
                    "imagePullPolicy": "IfNotPresent",
                    "envFrom": [{"configMapRef": {"name": "common", "optional": True}}],
                    "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}},
                    "ports": {"metrics": {"containerPort": 8080}, "serve": {"containerPort": 8000}},
                    "volumeMounts": {"logs": {}, "code": {"readOnly": True}, "shared-mem": {}},
                    "resources": {"limits": {"ephemeral-storage": "10Gi"}},
                },
                spec={
                    "serviceAccountName": "full-runner",
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "containers": {"log-reader": {"args": ["--follow", "/tmp/ray"]}},  # noqa: S108
                    "volumes": {"shared-mem": {"emptyDir": {"sizeLimit": "8Gi"}}, "code": {}},
                },
                labels={"team": "vision"},
                annotations={"example.com/note": "the head"},
            ),
            groups={
                "cpu-workers": Pods(
                    count=2,
                    start=("--memory=17179869184", "--num-cpus=4"),
                    containers=("ray-worker",),
                    init=("fetch-weights",),
                    spec={
                        "initContainers": {"fetch-weights": {"env": {"RAY_IP": "full-head-svc"}}},
                        "affinity": {
                            "podAntiAffinity": {
                                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100}],
                            }
                        },
                        "volumes": {"logs": {"emptyDir": {"sizeLimit": "5Gi"}}},
                    },
                    labels={"role": "cpu"},
                ),
                "gpu-workers": Pods(count=0),
            },
            head_service={
                "metadata": {
                    "annotations": {"prometheus.example.com/scrape": "true"},
                    "labels": {"team": ABSENT},
                },
                "spec": {"clusterIP": "None", "type": "ClusterIP"},
            },
            desired=("5", 40 * GI, "0", "0"),
            bounds=(1, 14),
            conditions={**READY, **POOL_SERVES},
        )
    ),
    "cluster-autoscaler-v1": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--memory=2000000000", "--no-monitor", "--num-cpus=0"),
                containers=("ray", "autoscaler"),
                env={"RAY_enable_autoscaler_v2": "false"},
                ray={"volumeMounts": _LOGS},
                spec={
                    "serviceAccountName": "autoscaler-v1",
                    "restartPolicy": "Always",
                    "volumes": {"ray-logs": {"emptyDir": {}}},
                    "containers": autoscaler(
                        image="registry.example.com/ray:2.40.0",
                        securityContext={"runAsNonRoot": True},
                        env={"LOG_LEVEL": "debug"},
                        envFrom=[{"secretRef": {"name": "autoscaler", "optional": True}}],
                    ),
                },
            ),
            groups={"elastic": Pods(count=0)},
            beside=autoscaler_objects(),
            desired=("1", 2_000_000_000, "0", "0"),
            bounds=(0, 10),
            older_ray=True,
        )
    ),
    "cluster-autoscaler-v2": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--memory=2147483648", "--no-monitor", "--num-cpus=0"),
                containers=("ray", "autoscaler"),
                env={"RAY_enable_autoscaler_v2": "true"},
                spec={
                    "serviceAccountName": "autoscaler-v2",
                    "restartPolicy": "Never",
                    "containers": autoscaler(),
                },
            ),
            groups={
                "reserved": Pods(
                    start=("--memory=1073741824", "--num-cpus=1"),
                    spec={"restartPolicy": "Never", "volumes": {"ray-logs": ABSENT}},
                ),
                "spare": Pods(count=0),
            },
            beside=autoscaler_objects(),
            # With the worker that minReplicas asks for; KubeRay counts replicas alone, which are 0.
            desired=("2", 3 * GI, "0", "0"),
            bounds=(1, 23),
        )
    ),
    "cluster-autoscaler-own-command": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--no-monitor",),
                containers=("ray", "autoscaler"),
                env={"RAY_enable_autoscaler_v2": re.compile("^(1|true)$")},
                spec={
                    "restartPolicy": "Never",
                    "containers": autoscaler(
                        command=["/bin/bash", "-lc", "--"],
                        args=["echo starting; $KUBERAY_GEN_AUTOSCALER_START_CMD"],
                    ),
                },
            ),
            groups={"elastic": Pods(count=0)},
            beside=autoscaler_objects(),
            bounds=(0, 3),
        )
    ),
    "cluster-command-before-start": Sample(
        expected=ExpectedCluster(
            head=Pods(before=" echo  preparing  the head  && "),
            groups={"small": Pods(before=" echo  hi  && ")},
            bounds=(0, 1),
        )
    ),
    "cluster-own-command": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--num-cpus=2",),
                own={
                    "command": ["/bin/bash"],
                    "args": ["-c", "set -x; ulimit -n 65536; $KUBERAY_GEN_RAY_START_CMD; sleep infinity"],
                },
            ),
            groups={
                "small": Pods(
                    own={
                        "command": ["/bin/bash"],
                        "args": ["-c", "ray start --address=own-command-head-svc:6379 --block"],
                    }
                )
            },
            bounds=(0, UNLIMITED),
        )
    ),
    "cluster-labels-and-resources": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--labels=ray.io/region=eu", "--memory=4294967296", "--num-cpus=0"),
                labels={"ray.io/region": "eu"},
            ),
            groups={
                "accelerated": Pods(
                    start=(
                        "--labels=ray.io/market-type=spot,ray.io/region=eu,team=a",
                        "--memory=8589934592",
                        "--num-cpus=4",
                        "--num-gpus=2",
                        """--resources='{"gpu.deckhouse.io/pool-a":1}'""",
                    ),
                    labels={"team": "a", "ray.io/region": "eu", "ray.io/market-type": "spot"},
                )
            },
            desired=("6", 12 * GI, "0", "0"),
            bounds=(0, UNLIMITED),
        )
    ),
    "cluster-gpus-of-pools": Sample(
        expected=ExpectedCluster(
            groups={
                "whole": Pods(
                    start=("--num-gpus=2",),
                    spec={
                        "affinity": {
                            "podAffinity": {
                                "preferredDuringSchedulingIgnoredDuringExecution": [
                                    {
                                        "podAffinityTerm": {
                                            "topologyKey": "kubernetes.io/hostname",
                                            "labelSelector": {
                                                "matchLabels": {
                                                    "ray.io/cluster": "gpus-of-pools",
                                                    "ray.io/group": "whole",
                                                }
                                            },
                                        }
                                    }
                                ]
                            }
                        }
                    },
                ),
                "slices": Pods(start=("--num-gpus=1",), spec={"affinity": ABSENT}),
            },
            desired=("0", 0, "3", "0"),
            bounds=(0, UNLIMITED),
            conditions={**READY, **POOL_SERVES},
        )
    ),
    "cluster-multi-host": Sample(
        expected=ExpectedCluster(
            groups={
                "slices": Pods(
                    count=4,
                    hosts=2,
                    start=("--memory=10737418240", "--num-cpus=1", """--resources='{"TPU":4}'"""),
                    spec={"nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x2x2"}},
                )
            },
            beside={
                "Service/{name}-headless": {
                    "metadata": {"labels": {"ray.io/headless-worker-svc": "multi-host"}},
                    "spec": {
                        "clusterIP": "None",
                        "publishNotReadyAddresses": True,
                        "selector": {"ray.io/cluster": "multi-host", "ray.io/node-type": "worker"},
                    },
                }
            },
            desired=("4", 40 * GI, "0", "16"),
            bounds=(0, 6),
        )
    ),
    "cluster-tpu": Sample(
        expected=ExpectedCluster(
            groups={
                "tpus": Pods(
                    start=("--memory=10737418240", "--num-cpus=1", """--resources='{"TPU":4}'"""),
                    spec={"nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice"}},
                )
            },
            desired=("1", 10 * GI, "0", "4"),
            bounds=(0, UNLIMITED),
        )
    ),
    "cluster-suspended": Sample(
        expected=ExpectedCluster(
            head=None,
            groups={"paused": Pods(count=0)},
            state="suspended",
            conditions={
                "HeadPodReady": ("False", "HeadPodNotFound"),
                "RayClusterProvisioned": ("False", "RayClusterPodsProvisioning"),
                "RayClusterSuspending": ("False", "RayClusterSuspending"),
                "RayClusterSuspended": ("True", "RayClusterSuspended"),
                "Valid": ("True", "Valid"),
                "WorkersReady": ("False", "Suspended"),
            },
        )
    ),
}
