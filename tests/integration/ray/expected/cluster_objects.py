"""What samples of RayClusters become that show what is beside the pods, or what is given to them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from gpu_control_plane.ray.options import RayOptions
from integration.ray.expected.checks import ABSENT, UNLIMITED, ExpectedCluster, Json, Pods
from integration.ray.expected.sample import Sample

_LOGS: Final = {"ray-logs": {"mountPath": "/tmp/ray"}}  # noqa: S108 - where Ray writes its logs

_TOKEN_ENV: Final = {"RAY_AUTH_MODE": "token"}

_TLS_ENV: Final = {
    "RAY_USE_TLS": "1",
    "RAY_TLS_SERVER_CERT": "/etc/ray/tls/tls.crt",
    "RAY_TLS_SERVER_KEY": "/etc/ray/tls/tls.key",
    "RAY_TLS_CA_CERT": "/etc/ray/tls/ca.crt",
}

_KEPT: Final = {"ray.io/ft-enabled": "true"}
_WAITS_FOR_CERTIFICATE: Final = ("wait-for-tls-ip-san",)


def _token(secret: str) -> Json:
    return {**_TOKEN_ENV, "RAY_AUTH_TOKEN": {"secretKeyRef": {"name": secret, "key": "auth_token"}}}


def _policy(group: str, ingress: list[Json], egress: list[Json]) -> Json:
    """Pods of the cluster reach each other, whatever else there is."""
    within = [{"podSelector": {"matchLabels": {"ray.io/cluster": "{name}"}}}]
    kind = (
        {"ray.io/node-type": "head"} if group == "headgroup" else {"ray.io/node-type": "worker", "ray.io/group": group}
    )
    return {
        "metadata": {"labels": {"ray.io/group": group}},
        "spec": {
            "podSelector": {"matchLabels": {"ray.io/cluster": "{name}", **kind}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": within}, *ingress],
            "egress": [{"to": within}, *egress],
        },
    }


def _leaf(node_type: str, hosts: list[str], addresses: list[str]) -> Json:
    """90 days, renewed 15 days before; each pod's address is in it."""
    return {
        "spec": {
            "secretName": f"ray-{node_type}-secret-tls",
            "dnsNames": hosts,
            "ipAddresses": addresses,
            "duration": "2160h0m0s",
            "renewBefore": "360h0m0s",
            "issuerRef": {"name": "ray-ca-issuer-tls", "kind": "Issuer"},
        }
    }


def _with_tls(**container: Any) -> Json:
    mounts = {"ray-tls": {"mountPath": "/etc/ray/tls", "readOnly": True}}
    return {"env": _TLS_ENV, "volumeMounts": mounts, **container}


_INGRESS: Final = ExpectedCluster(
    beside={
        "Ingress/{name}-head-ingress": {
            "metadata": {
                "labels": {"ray.io/identifier": "ingress-head"},
                "annotations": {
                    "nginx.ingress.kubernetes.io/rewrite-target": "/$1",
                    "kubernetes.io/ingress.class": ABSENT,
                },
            },
            "spec": {
                "ingressClassName": "nginx",
                "tls": [{"hosts": ["ray.example.com"], "secretName": "ray-tls-front"}],
                "rules": [
                    {
                        "host": "ray.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/dashboard",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "ingress-head-svc", "port": {"number": 8265}}},
                                }
                            ]
                        },
                    }
                ],
            },
        }
    }
)

OBJECTS: Final[Mapping[str, Sample]] = {
    "cluster-ingress": Sample(expected=_INGRESS),
    "cluster-ingress on OpenShift": Sample(
        name="cluster-ingress",
        options=RayOptions(openshift=True),
        expected=ExpectedCluster(
            beside={
                "Route/{name}-head-route": {
                    "metadata": {"annotations": {"nginx.ingress.kubernetes.io/rewrite-target": "/$1"}},
                    "spec": {"to": {"kind": "Service", "name": "ingress-head-svc"}, "port": {"targetPort": 8265}},
                }
            },
        ),
    ),
    "cluster-node-port": Sample(
        expected=ExpectedCluster(
            head_service={"spec": {"type": "NodePort", "clusterIP": re.compile(r"^\d")}},
            ports={"client": 10001, "dashboard": 8265, "gcs": 6379, "metrics": 8080},
        )
    ),
    "cluster-own-head-service": Sample(
        expected=ExpectedCluster(
            service="entrance",
            head_service={
                "metadata": {
                    "labels": {"tier": "front"},
                    "annotations": {"example.com/from": "cluster", "example.com/zone": "a"},
                },
                "spec": {
                    "type": "LoadBalancer",
                    "selector": {"will": ABSENT},
                    "loadBalancerSourceRanges": ["10.0.0.0/8"],
                    "ports": {"extra": {"targetPort": 12345}},
                },
            },
            ports={"extra": 12345, "dashboard": 8265, "metrics": 8080},
        )
    ),
    "cluster-redis": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=(
                    "--num-cpus=0",
                    "--redis-password=$REDIS_PASSWORD",
                    "--redis-username=$REDIS_USERNAME",
                ),
                env={
                    "RAY_REDIS_ADDRESS": "redis:6379",
                    "REDIS_USERNAME": "default",
                    "REDIS_PASSWORD": {"secretKeyRef": {"name": "redis-password", "key": "password"}},
                    "RAY_external_storage_namespace": "team-a",
                },
                spec={"terminationGracePeriodSeconds": 5},
                annotations=_KEPT,
            ),
            groups={"small": Pods(env={"RAY_gcs_rpc_server_reconnect_timeout_s": "600", "REDIS_PASSWORD": ABSENT})},
            bounds=(1, 10),
            finalizers=("ray.io/gcs-ft-redis-cleanup-finalizer",),
        )
    ),
    "cluster-redis-by-annotation": Sample(
        expected=ExpectedCluster(
            head=Pods(
                start=("--num-cpus=0", "--redis-password=$REDIS_PASSWORD"),
                env={
                    "RAY_REDIS_ADDRESS": "rediss://redis:6379",
                    "REDIS_PASSWORD": {"secretKeyRef": {"name": "redis-password", "key": "password"}},
                    "RAY_external_storage_namespace": "team-b",
                },
                annotations=_KEPT,
            ),
            finalizers=("ray.io/gcs-ft-redis-cleanup-finalizer",),
        )
    ),
    "cluster-rocksdb": Sample(
        expected=ExpectedCluster(
            head=Pods(
                env={"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": "/data/gcs"},
                ray={"volumeMounts": {"gcs-storage": {"mountPath": "/data/gcs", "subPath": "gcs"}}},
                spec={"volumes": {"gcs-storage": {"persistentVolumeClaim": {"claimName": "rocksdb-gcs-pvc"}}}},
                annotations=_KEPT,
            ),
            beside={
                "PersistentVolumeClaim/{name}-gcs-pvc": {
                    "metadata": {"ownerReferences": ABSENT},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "fast",
                        "resources": {"requests": {"storage": "5Gi"}},
                    },
                }
            },
        )
    ),
    "cluster-token-auth": Sample(
        expected=ExpectedCluster(
            head=Pods(env=_token("token-auth")),
            groups={
                "small": Pods(
                    env=_token("token-auth"),
                    spec={"initContainers": {"wait-gcs-ready": {"env": _TOKEN_ENV}}},
                )
            },
            # Base64 of 44 characters, which are base64 of 32 bytes.
            beside={"Secret/{name}": {"data": {"auth_token": re.compile("^[A-Za-z0-9+/]{58,59}=*$")}}},
            bounds=(0, UNLIMITED),
            older_ray=True,
        )
    ),
    "cluster-token-auth-own-secret": Sample(
        expected=ExpectedCluster(
            head=Pods(env=_token("ray-token")),
        )
    ),
    "cluster-token-auth-kubernetes": Sample(
        edits={"spec.headGroupSpec.template.spec.serviceAccountName": "default"},
        expected=ExpectedCluster(
            head=Pods(
                env={**_TOKEN_ENV, "RAY_ENABLE_K8S_TOKEN_AUTH": "true", "RAY_AUTH_TOKEN": ABSENT},
                ray={"volumeMounts": {"ray-token": {"mountPath": "/var/run/secrets/ray.io/serviceaccount"}}},
                spec={"volumes": {"ray-token": {"projected": {"sources": [{"serviceAccountToken": {}}]}}}},
            ),
        ),
    ),
    "cluster-tls": Sample(
        expected=ExpectedCluster(
            head=Pods(
                first_init=_WAITS_FOR_CERTIFICATE,
                ray=_with_tls(),
                spec={"volumes": {"ray-tls": {"secret": {"secretName": "ray-head-secret-tls"}}}},
            ),
            groups={
                "small": Pods(
                    first_init=_WAITS_FOR_CERTIFICATE,
                    ray=_with_tls(),
                    spec={
                        "volumes": {"ray-tls": {"secret": {"secretName": "ray-worker-secret-tls"}}},
                        "initContainers": {"wait-gcs-ready": _with_tls()},
                    },
                )
            },
            beside={
                "Issuer/ray-selfsigned-issuer-{name}": {"spec": {"selfSigned": {}}},
                "Certificate/ray-ca-certificate-{name}": {
                    "spec": {"isCA": True, "issuerRef": {"name": "ray-selfsigned-issuer-tls"}}
                },
                "Issuer/ray-ca-issuer-{name}": {"spec": {"ca": {}}},
                "Certificate/ray-head-cert-{name}": _leaf(
                    "head",
                    ["localhost", "tls-head-svc.{namespace}.svc.cluster.local"],
                    ["10.1.2.3", "127.0.0.1"],
                ),
                "Certificate/ray-worker-cert-{name}": _leaf("worker", ["localhost"], ["10.1.2.3", "127.0.0.1"]),
            },
            bounds=(0, UNLIMITED),
        )
    ),
    "cluster-network-policy": Sample(
        expected=ExpectedCluster(
            groups={"downloads": Pods(), "quiet": Pods()},
            beside={
                "NetworkPolicy/{name}-head": _policy(
                    "headgroup",
                    [
                        {
                            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}}],
                            "ports": [{"protocol": "TCP", "port": 8265}],
                        }
                    ],
                    [{"ports": [{"protocol": "UDP", "port": 53}]}],
                ),
                "NetworkPolicy/{name}-workers-downloads": _policy(
                    "downloads", [], [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]
                ),
                "NetworkPolicy/{name}-workers-quiet": _policy(
                    "quiet", [], [{"ports": [{"protocol": "UDP", "port": 53}]}]
                ),
            },
            bounds=(0, UNLIMITED),
        )
    ),
    "cluster-history-server": Sample(
        expected=ExpectedCluster(
            head=Pods(
                containers=("ray", "ray-history-collector"),
                ray={"volumeMounts": _LOGS},
                spec={
                    "volumes": {"ray-logs": {"emptyDir": {}}},
                    "containers": {
                        "ray-history-collector": {
                            "image": "registry.example.com/collector:1",
                            "imagePullPolicy": "IfNotPresent",
                            "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}},
                            "env": {"STORAGE_BACKEND": "s3"},
                            "volumeMounts": _LOGS,
                        }
                    },
                },
            ),
        )
    ),
}
