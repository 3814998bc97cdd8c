"""RayServices under load: clients in a pod ask through the Service while clusters change behind it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from blocking_wait import until
from e2e.ray.image.recipe import NAME
from e2e.ray.manifests import Manifest, cluster_spec, ray_service
from e2e.ray.ray_env import APPS, RayEnv, Stopwatch, settle_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("long_run")]
SERVICE = "answers"
URL = f"http://{SERVICE}-serve-svc.default.svc.cluster.local:8000/"
THREADS = 4
PATIENCE = 15


def spec(*, workers: int = 1, cards: int = 0, env_of_workers: dict[str, str] | None = None) -> Manifest:
    found = cluster_spec(workers=workers, cards=cards, quick=False)
    for name, value in (env_of_workers or {}).items():
        [container] = found["workerGroupSpecs"][0]["template"]["spec"]["containers"]
        container["env"].append({"name": name, "value": value})
    return found


class Clients:
    """Threads in a pod that ask the Service all the time."""

    def __init__(self, env: RayEnv, name: str) -> None:
        self._env = env
        self._name = name
        container = {
            "name": "main",
            "image": NAME,
            "imagePullPolicy": "Never",
            "command": ["python3", "/apps/request_load.py", URL, str(THREADS), str(PATIENCE)],
            "volumeMounts": [{"name": APPS, "mountPath": "/apps"}],
        }
        volumes = [{"name": APPS, "configMap": {"name": APPS}}]
        env.cluster_env.run_pod(name, containers=[container], volumes=volumes, restartPolicy="Never")

    def end(self) -> dict[str, Any]:
        """Let them end, and hear what they have seen."""
        self._env.cluster_env.exec(self._name, "touch", "/tmp/end")  # noqa: S108 - of the container
        until(lambda: self._env.cluster_env.pod(self._name)["status"]["phase"] == "Succeeded", within=60)
        seen: dict[str, Any] = json.loads(self._env.kubectl("logs", self._name))
        self._env.cluster_env.delete_pod(self._name)
        return seen


def running(env: RayEnv) -> bool:
    status = env.status("rayservices", SERVICE)
    return status.get("serviceStatus") == "Running" and not status.get("pendingServiceStatus", {}).get("rayClusterName")


def active(env: RayEnv) -> str:
    return str(env.status("rayservices", SERVICE).get("activeServiceStatus", {}).get("rayClusterName", ""))


def told(seen: dict[str, Any]) -> str:
    number = sum(seen["answers"].values())
    return (
        f"{number} answers {dict(seen['answers'])}, {len(seen['errors'])} errors {seen['errors'][:3]},"
        f" slowest {seen['slowest']} s, {seen['slow']} slower than 3 s"
    )


@pytest.fixture
def service(env: RayEnv) -> Iterator[RayEnv]:
    """The service with two replicas; it is removed afterwards."""
    watch = Stopwatch()
    env.create(ray_service(SERVICE, spec(), "one"))
    until(lambda: running(env), within=200)
    watch.say("the RayService runs")
    yield env
    env.delete("rayservice", SERVICE)


def test_a_switch_to_a_new_cluster_fails_no_request(service: RayEnv) -> None:
    before = active(service)
    clients = Clients(service, "switch")
    watch = Stopwatch()
    service.apply(ray_service(SERVICE, spec(env_of_workers={"CHANGED": "1"}), "one"))
    until(lambda: running(service) and active(service) != before, within=300)
    watch.say("the new cluster is the active one")
    after = active(service)
    until(lambda: [each["metadata"]["name"] for each in service.clusters()] == [after], within=150)
    watch.say("the old cluster is gone")
    settle_for(5)
    seen = clients.end()
    watch.say(told(seen))
    assert seen["errors"] == []
    assert seen["answers"][f"one {before}"] > 0
    assert seen["answers"][f"one {after}"] > 0


def test_the_operator_may_die_during_a_switch(service: RayEnv) -> None:
    """It is killed when the new cluster is made, when that is about to be the active one, and while the old one still
    has its time.
    """
    before = active(service)
    clients = Clients(service, "killed")
    watch = Stopwatch()
    service.apply(ray_service(SERVICE, spec(env_of_workers={"CHANGED": "2"}), "one"))
    until(lambda: len(service.clusters()) == 2)
    service.kill_controller()
    watch.say("the new cluster is there; the operator was killed")
    pending = next(name for each in service.clusters() if (name := each["metadata"]["name"]) != before)
    service.wait_ready(pending, 2, within=200)
    service.kill_controller()
    watch.say("its pods are ready; the operator was killed")
    until(lambda: running(service) and active(service) != before, within=300)
    watch.say("the new cluster is the active one")
    assert active(service) == pending
    service.kill_controller()
    watch.say("the operator was killed")
    until(lambda: [each["metadata"]["name"] for each in service.clusters()] == [pending], within=150)
    watch.say("the old cluster is gone")
    seen = clients.end()
    watch.say(told(seen))
    assert seen["errors"] == []


def test_a_service_that_holds_all_cards_is_upgraded_worker_by_worker(env: RayEnv) -> None:
    """Both cards of the pool are in use, one by each replica. What a worker that leaves has under way may fail."""
    env.create(ray_service(SERVICE, spec(workers=2, cards=1), "one", gpus=1))
    try:
        until(lambda: running(env), within=200)
        before = active(env)
        clients = Clients(env, "handover")
        watch = Stopwatch()
        env.apply(ray_service(SERVICE, spec(workers=2, cards=1, env_of_workers={"CHANGED": "3"}), "one", gpus=1))
        until(lambda: running(env) and active(env) != before, within=300)
        watch.say("full pool: the new cluster is the active one")
        after = active(env)
        until(lambda: [each["metadata"]["name"] for each in env.clusters()] == [after], within=150)
        until(lambda: env.status("rayclusters", after).get("readyWorkerReplicas") == 2, within=150)
        watch.say("full pool: the old cluster is gone, both cards are the new one's")
        settle_for(5)
        seen = clients.end()
        watch.say(f"full pool: {told(seen)}")
        assert len(seen["errors"]) <= sum(seen["answers"].values()) // 50
        assert seen["answers"][f"one {before}"] > 0
        assert seen["answers"][f"one {after}"] > 0
    finally:
        env.delete("rayservice", SERVICE)


@pytest.mark.parametrize(("replicas", "stalls"), [(2, False), (1, True)])
def test_an_application_changes_in_place(env: RayEnv, replicas: int, stalls: bool) -> None:
    """With one replica Ray itself stops the old one before the new one is up: requests wait."""
    env.create(ray_service(SERVICE, spec(), "one", replicas=replicas))
    try:
        until(lambda: running(env), within=200)
        before = active(env)
        clients = Clients(env, "in-place")
        watch = Stopwatch()
        env.apply(ray_service(SERVICE, spec(), "two", replicas=replicas, code="demo_app:slow_app"))
        name = f"two {before}"
        until(lambda: env.answer(URL) == name, within=150)
        watch.say(f"{replicas} replicas: the first new answer")
        settle_for(10)
        seen = clients.end()
        watch.say(f"{replicas} replicas: {told(seen)}")
        assert active(env) == before
        assert seen["errors"] == []
        assert (seen["slow"] > 0) == stalls
    finally:
        env.delete("rayservice", SERVICE)
