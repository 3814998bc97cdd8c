"""Which work real Ray tells of, by which an idle cluster is known: drivers are not all of it."""

import json

import pytest

from blocking_wait import until
from e2e.ray.manifests import cluster_spec, ray_cluster
from e2e.ray.ray_env import RayEnv, Stopwatch, settle_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("long_run")]
NAME = "quiet"
LONGER_SECONDS = 100
"""Than the time that the cluster may be idle, and half a minute between two questions."""
ACTOR = """
import ray
ray.init(address="auto", namespace="research", log_to_driver=False)
@ray.remote
class Kept:
    def answers(self):
        return True
kept = Kept.options(name="kept", lifetime="detached", num_cpus=0).remote()
assert ray.get(kept.answers.remote())
"""
NO_ACTOR = """
import ray
ray.init(address="auto", namespace="research", log_to_driver=False)
ray.kill(ray.get_actor("kept"))
"""
APPLICATION: dict[str, object] = {
    "name": "demo",
    "route_prefix": "/",
    "import_path": "demo_app:app",
    "deployments": [
        {"name": "Answer", "num_replicas": 1, "user_config": {"word": "a"}, "ray_actor_options": {"num_cpus": 0}}
    ],
}


def test_a_cluster_that_holds_actors_or_serves_is_at_work_without_a_driver(env: RayEnv) -> None:
    watch = Stopwatch()
    cluster = ray_cluster(NAME, cluster_spec(workers=0))
    cluster["metadata"]["annotations"] = {"gpu.deckhouse.io/idle-timeout": "1m"}
    env.create(cluster)
    env.wait_ready(NAME, 1)
    env.in_head(NAME, ACTOR)
    watch.say("a detached actor lives, and its driver has ended")
    settle_for(LONGER_SECONDS)
    assert not suspended(env)
    deploy(env, [APPLICATION])
    env.in_head(NAME, NO_ACTOR)
    watch.say("an application is served, and the actor is gone")
    settle_for(LONGER_SECONDS)
    assert not suspended(env)
    activities = env.dashboard(NAME, "/api/component_activities")
    assert activities["driver"]["is_active"] == "INACTIVE"
    deploy(env, [])
    until(lambda: not env.dashboard(NAME, "/api/serve/applications/")["applications"], within=60)
    watch.say("nothing is served any more; Serve's own actors stay")
    until(lambda: suspended(env), within=2 * LONGER_SECONDS)
    watch.say("the cluster is suspended")
    until(lambda: not env.pods(NAME), within=60)


def deploy(env: RayEnv, applications: list[dict[str, object]]) -> None:
    """Through the dashboard, as a RayService does: no driver is left behind."""
    body = json.dumps({"applications": applications})
    code = (
        "import urllib.request as u; "
        f"u.urlopen(u.Request('http://127.0.0.1:8265/api/serve/applications/', {body.encode()!r}, "
        "{'Content-Type': 'application/json'}, method='PUT'), timeout=60)"
    )
    env.in_head(NAME, code)


def suspended(env: RayEnv) -> bool:
    return bool(env.get("rayclusters", NAME)["spec"].get("suspend"))
