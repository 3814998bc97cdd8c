"""The chart as tests look at it: rendered by the real Helm, read as objects."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.local.versions import KUBERNETES

NAMESPACE: Final = DEFAULT_NAMESPACE
ELSEWHERE: Final = "accelerators"
"""Another one, which sorts where the default does among the namespaces that policies exempt."""
CHART: Final = Path(__file__).parents[2] / "charts" / "gpu-control-plane"
OPERANDS: Final = "operands"
"""A namespace for operands, where they have one of their own."""
WATCHED_FOR_RAY: Final = ("research", "serving")
"""Namespaces with objects of Ray, where a chart names some."""
RELEASE: Final = "gpu"

type Manifest = dict[str, Any]

VALUE_SETS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "one-replica": {
        "controller": {
            "replicas": 1,
            "without": ["pools"],
            "nfdNamespaces": ["hardware", "nfd"],
            "nvidiaNamespaces": ["infra", "monitoring"],
            "resources": {},
        },
        "webhook": {"enabled": False},
    },
    "simulated": {
        "agent": {
            "hardware": "simulated",
            "injection": "Kubelet",
            "unpooled": "nvidia.com/gpu",
            "conflictingResources": ["nvidia.com/a100", "nvidia.com/team-"],
        }
    },
    "labels": {"agent": {"labels": True, "hostPID": True, "maxUnavailable": 1, "driverRoots": ["/opt/driver"]}},
    "runtime": {
        "agent": {
            "injection": "Runtime",
            "runtime": {
                "configure": True,
                "name": "containerd",
                "config": "/etc/containerd/site.toml",
                "program": "/opt/containerd/bin/containerd",
                "unit": "containerd-site",
                "nvidiaRuntime": "/usr/bin/nvidia-container-runtime",
                "default": True,
            },
        },
        "image": {"pullSecrets": [{"name": "registry"}]},
    },
    "without-nfd": {"discovery": {"enabled": True, "priorityClassName": "system-node-critical"}},
    "pinned": {
        "image": {
            "repository": "registry.example/gpu",
            "digest": f"sha256:{'0' * 64}",
            "pullPolicy": "Always",
            "pullSecrets": [{"name": "registry"}],
        },
        "logLevel": "debug",
    },
    "placed": {
        "controller": {
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        },
        "agent": {"nodeSelector": {"gpu": "yes"}, "kubeletRoot": "/data/kubelet", "priorityClassName": ""},
        "crds": {"takeOver": True, "removeOnUninstall": True},
    },
    "without-operator": {"operator": {"enabled": False}, "controller": {"without": ["pools", "bootstrap"]}},
    "stack": {
        "operator": {
            "namespace": OPERANDS,
            "images": {"VALIDATOR_IMAGE": "registry.example/validator:v1", "DRIVER_IMAGE": "registry.example/driver"},
        },
        "clusterPolicy": {"create": True, "spec": {"driver": {"enabled": False, "useNvidiaDriverCRD": True}}},
        "nvidiaDriver": {"create": True, "name": "all", "spec": {"default": True, "image": "driver"}},
    },
    "ray-everywhere": {"ray": {"enabled": True}},
    "ray": {
        "ray": {
            "enabled": True,
            "watchNamespace": list(WATCHED_FOR_RAY),
            "kuberayNamespaces": ["default"],
            "batchScheduler": {"name": "volcano"},
            "useKubernetesProxy": True,
            "env": {"ENABLE_PROBES_INJECTION": "false", "CLUSTER_DOMAIN": "k8s.example.com"},
            "configuration": {
                "defaultContainerEnvs": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
                "defaultPodLabels": {"team": "ray"},
            },
        },
        "webhook": {"clientAuthority": "api-servers"},
    },
    "ray-alone": {
        "ray": {
            "enabled": True,
            "watchNamespace": ["research"],
            "singleNamespaceInstall": True,
            "batchScheduler": {"name": "scheduler-plugins"},
            "startTogether": False,
            "configuration": {"headSidecarContainers": [{"name": "logs", "image": "registry.example/logs:1"}]},
        },
    },
    "policy-only": {"clusterPolicy": {"create": True, "name": "mine", "spec": {"dcgm": {"enabled": True}}}},
    "driver-only": {"nvidiaDriver": {"create": True, "spec": {"default": True, "image": "driver"}}},
    "guarded-webhook": {
        "webhook": {"clientAuthority": "api-servers", "networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}}
    },
    "console": {"console": {"enabled": True}, "controller": {"gpuNodes": "Never"}},
    "console-tls": {
        "console": {
            "enabled": True,
            "tls": {"secretName": "console-tls"},
            "publicUrl": "https://gpu.example.com",
            "oidc": {
                "issuer": "https://dex.example.com",
                "clientSecret": "gpu-console",
                "authority": "dex-authority",
                "scopes": ["audience:server:client_id:kubernetes"],
            },
            "networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
            "priorityClassName": "system-cluster-critical",
        }
    },
    "console-ingress": {
        "console": {
            "enabled": True,
            "ingress": {
                "enabled": True,
                "host": "gpu.example.com",
                "className": "nginx",
                "annotations": {"cert-manager.io/cluster-issuer": "letsencrypt"},
            },
            "oidc": {"issuer": "https://login.example.com", "clientSecret": "gpu-console"},
            "impersonation": {"enabled": True, "userPrefix": "oidc:", "groupsPrefix": "oidc:"},
        }
    },
    "console-unconstrained": {
        "console": {
            "enabled": True,
            "ingress": {"enabled": True, "host": "gpu.example.com"},
            "tls": {"secretName": "console-tls"},
            "oidc": {"issuer": "https://login.example.com", "clientSecret": "gpu-console"},
            "impersonation": {"enabled": True, "unconstrained": True},
        }
    },
    "closed": {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        },
        "podSecurity": {"label": True},
        "console": {"enabled": True},
        "discovery": {"enabled": True},
    },
    "many-replicas": {
        "controller": {"replicas": 3, "spread": "RequireZones"},
        "priorityClasses": {"create": True},
        "podSecurity": {"label": True},
        "operator": {"namespace": OPERANDS},
    },
    "bare": {"crds": {"install": False}, "cleanup": {"enabled": False}, "webhook": {"enabled": False}},
}
"""What people are likely to choose; together they reach every branch of the templates."""


class Refused(Exception):
    """Helm did not accept something; the text is what it says."""


class Helm:
    """The Helm command."""

    def __init__(self, program: Path, home: Path) -> None:
        self._program = program
        # Nothing of the user's own Helm: no repositories, plugins or caches.
        self._environ = {"HOME": str(home), "HELM_NAMESPACE": NAMESPACE}
        self._renders: dict[tuple[str, ...], str] = {}

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None) -> str:
        command = [str(self._program), *arguments, *(["--values", "-"] if values else [])]
        environ = self._environ | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
        given = yaml.safe_dump(dict(values)) if values else ""
        done = subprocess.run(command, input=given, env=environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr + done.stdout)
        return done.stdout

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        version: str = KUBERNETES.version,
        namespace: str = NAMESPACE,
        served: str = "",
    ) -> str:
        """Rendered without a cluster, for a given version of Kubernetes, and once for each set of values. `served` is a
        kind of others that the cluster has: group/version/Kind."""
        key = version, namespace, served, yaml.safe_dump(dict(values or {}))
        if key not in self._renders:
            options = ["--kube-version", version, "--namespace", namespace]
            if served:
                options += ["--api-versions", served]
            self._renders[key] = self.run("template", RELEASE, str(CHART), *options, values=values)
        return self._renders[key]

    def objects(
        self, values: Mapping[str, Any] | None = None, *, namespace: str = NAMESPACE, served: str = ""
    ) -> "Objects":
        return Objects(yaml.load_all(self.template(values, namespace=namespace, served=served), yaml.CSafeLoader))


class Objects:
    """What a render consists of."""

    def __init__(self, documents: Iterable[Manifest | None]) -> None:
        self.all = [document for document in documents if document]

    def of(self, *kinds: str) -> list[Manifest]:
        return [each for each in self.all if each["kind"] in kinds]

    def one(self, kind: str, name: str) -> Manifest:
        (found,) = (each for each in self.of(kind) if each["metadata"]["name"] == name)
        return found

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """The template of every pod, with the component it belongs to."""
        for each in self.of("Deployment", "DaemonSet", "Job"):
            yield each["metadata"]["labels"]["app.kubernetes.io/component"], each["spec"]["template"]

    def pod(self, component: str) -> Manifest:
        return dict(self.pods())[component]


def container(pod: Manifest) -> Manifest:
    """The one container of a pod."""
    (only,) = pod["spec"]["containers"]
    return msgspec.convert(only, dict[str, Any])


def command_of(pod: Manifest) -> list[str]:
    """How the one container of a pod is started. As the kubelet does, $$ is read as $; variables are left."""
    program = container(pod)
    words = msgspec.convert([*program["command"], *program.get("args", [])], list[str])
    return [word.replace("$$", "$") for word in words]
