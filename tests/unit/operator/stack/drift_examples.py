"""Objects of each kind as they are sent, and as an API server of Kubernetes 1.36 answers: `answers.json` beside this.

The manifests say as little as they may, so that the answers show all that is filled in.
"""

import copy
import json
from pathlib import Path
from typing import Any

import msgspec

from gpu_control_plane.operator.stack.live import CORE_KINDS, Live
from gpu_control_plane.operator.stack.manifest import Manifest

_RBAC = "rbac.authorization.k8s.io"


def _named(kind: str, api: str, **content: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "example", "labels": {"app": "example"}}, **content}


def _daemonset(pod: Manifest, **spec: Any) -> Manifest:
    template = {"metadata": {"labels": {"app": "example"}}, "spec": pod}
    return _named(
        "DaemonSet", "apps/v1", spec={"selector": {"matchLabels": {"app": "example"}}, "template": template, **spec}
    )


_RICH_POD: Manifest = {
    "serviceAccountName": "example",
    "hostPID": False,
    "automountServiceAccountToken": False,
    "nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"},
    "initContainers": [{"name": "first", "image": "registry.example/first"}],
    "containers": [
        {
            "name": "main",
            "image": "registry.example:5000/main:v1",
            "args": [],
            "env": [
                {"name": "EMPTY", "value": ""},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "ports": [{"containerPort": 9400, "name": "metrics"}],
            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}, "requests": {"memory": 1000}},
            "livenessProbe": {"httpGet": {"port": 9400}},
            "startupProbe": {"exec": {"command": ["true"]}, "failureThreshold": 120},
            "lifecycle": {"preStop": {"httpGet": {"port": 9400, "path": "/bye"}}},
            "securityContext": {"privileged": True, "allowPrivilegeEscalation": True},
            "volumeMounts": [{"name": "host", "mountPath": "/host", "readOnly": False}],
        },
        {"name": "digest", "image": "registry.example/digest@sha256:" + "a" * 64},
    ],
    "volumes": [
        {"name": "host", "hostPath": {"path": "/"}},
        {"name": "empty", "emptyDir": {"sizeLimit": "1024Mi"}},
        {"name": "none", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "example"}},
        {"name": "secret", "secret": {"secretName": "example"}},
        {"name": "down", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {
            "name": "several",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token"}},
                    {"downwardAPI": {"items": [{"path": "b", "fieldRef": {"fieldPath": "metadata.uid"}}]}},
                ]
            },
        },
    ],
}
_BARE_POD: Manifest = {"containers": [{"name": "main", "image": "registry.example/main:latest"}]}
_SUBJECTS = [
    {"kind": "ServiceAccount", "name": "example", "namespace": "gpu"},
    {"kind": "Group", "name": "people"},
]

SENT: dict[str, Manifest] = {
    "rich DaemonSet": _daemonset(_RICH_POD),
    "bare DaemonSet": _daemonset(_BARE_POD),
    "DaemonSet that waits": _daemonset(_BARE_POD, updateStrategy={"type": "OnDelete"}),
    "DaemonSet that hurries": _daemonset(
        _BARE_POD, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    ),
    "DaemonSet on the host": _daemonset(
        {
            "hostNetwork": True,
            "containers": [{"name": "main", "image": "registry.example/main:v1", "ports": [{"containerPort": 1}]}],
        }
    ),
    "Service": _named("Service", "v1", spec={"selector": {"app": "example"}, "ports": [{"name": "a", "port": 80}]}),
    "Service for outside": _named(
        "Service",
        "v1",
        spec={"type": "NodePort", "selector": {"app": "x"}, "ports": [{"port": 81, "targetPort": "web"}]},
    ),
    "Service with an address": _named(
        "Service", "v1", spec={"type": "LoadBalancer", "selector": {"app": "x"}, "ports": [{"port": 82}]}
    ),
    "ServiceAccount": _named("ServiceAccount", "v1"),
    "ConfigMap": _named("ConfigMap", "v1", data={"a": "b", "empty": ""}),
    "Role": _named("Role", f"{_RBAC}/v1", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    "ClusterRole": _named(
        "ClusterRole", f"{_RBAC}/v1", rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    ),
    "RoleBinding": _named(
        "RoleBinding", f"{_RBAC}/v1", roleRef={"kind": "Role", "name": "example"}, subjects=_SUBJECTS
    ),
    "ClusterRoleBinding": _named(
        "ClusterRoleBinding",
        f"{_RBAC}/v1",
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": "example"},
        subjects=_SUBJECTS[:1],
    ),
    "RuntimeClass": _named("RuntimeClass", "node.k8s.io/v1", handler="nvidia"),
}
_KINDS: dict[str, type[Live]] = {kind.resource.kind: kind for kind in CORE_KINDS}
_ANSWERS: dict[str, Manifest] = json.loads((Path(__file__).parent / "answers.json").read_text())


def sent(name: str) -> Manifest:
    return copy.deepcopy(SENT[name])


def answer(name: str) -> Manifest:
    """The whole object as the API server has it."""
    return copy.deepcopy(_ANSWERS[name])


def live(manifest: Manifest) -> Live:
    return msgspec.convert(manifest, _KINDS[manifest["kind"]])
