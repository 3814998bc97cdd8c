"""Objects of Ray as a user would write them, small enough for a machine of two processors."""

from typing import Any, Final

from e2e.ray.image.recipe import NAME, RAY
from e2e.ray.ray_env import APPS, RESOURCE

type Manifest = dict[str, Any]

_QUICK: Final = {"initialDelaySeconds": 1, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 30}
GPUS: Final = "import ray; ray.init(); print('GPUs', ray.cluster_resources().get('GPU', 0))"


def template(name: str, memory: str, *, cards: int = 0, probe: Manifest | None = None, **spec: Any) -> Manifest:
    """A pod template. Without a limit of processors a start is quick; Ray counts the one that is requested."""
    limits: Manifest = {"memory": memory} | ({RESOURCE: cards} if cards else {})
    container: Manifest = {
        "name": name,
        "image": NAME,
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": limits},
        "env": [{"name": "PYTHONPATH", "value": "/apps"}],
        "volumeMounts": [{"name": APPS, "mountPath": "/apps"}],
    }
    if probe:
        container["readinessProbe"] = probe
    volumes = [{"name": APPS, "configMap": {"name": APPS}}]
    return {"spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 5, **spec}}


def cluster_spec(
    *,
    workers: int = 2,
    cards: int = 0,
    quick: bool = True,
    most: int | None = None,
    params: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """The spec of a RayCluster. `quick`: with readiness probes that begin at once; else our own."""
    probe = {"httpGet": {"path": "/api/healthz", "port": 52365}, **_QUICK} if quick else None
    group: Manifest = {
        "groupName": "workers",
        "replicas": workers,
        "minReplicas": 0,
        "maxReplicas": most if most is not None else max(workers, 1),
        "rayStartParams": params or {},
        "template": template("ray-worker", "1Gi", cards=cards, probe=probe),
    }
    head: Manifest = {
        "rayStartParams": {"disable-usage-stats": "true", "num-cpus": "0"},
        "template": template("ray-head", "2Gi", probe=probe),
    }
    return {"rayVersion": RAY, "headGroupSpec": head, "workerGroupSpecs": [group] if workers or most else [], **spec}


def ray_cluster(name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


def ray_job(name: str, entrypoint: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": {"entrypoint": entrypoint, **spec},
    }


def ray_service(
    name: str,
    cluster: Manifest,
    word: str,
    *,
    replicas: int = 2,
    gpus: int = 0,
    code: str = "demo_app:app",
    **spec: Any,
) -> Manifest:
    """A RayService whose application answers with `word` and the name of its cluster. `gpus` are those of a replica."""
    serve = f"""
proxy_location: EveryNode
http_options: {{host: 0.0.0.0, port: 8000}}
applications:
- name: demo
  route_prefix: /
  import_path: {code}
  deployments:
  - name: Answer
    num_replicas: {replicas}
    user_config: {{word: {word}}}
    ray_actor_options: {{num_cpus: 0.1, num_gpus: {gpus}}}
"""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": name},
        "spec": {"serveConfigV2": serve, "rayClusterConfig": cluster, **spec},
    }
