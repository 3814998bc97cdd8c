"""The Services of a RayService: what a user gives stays, and requests go where they are answered."""

import msgspec
from msgspec.structs import replace

from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.ray.cluster.manifests import ClusterContext
from gpu_control_plane.ray.owned import OwnedService
from gpu_control_plane.ray.service import backend, handover
from gpu_control_plane.ray.service.actions import PatchCluster
from unit.ray.service.builders import CONFIG, POOL, group, service_of
from unit.ray.service.service_model import RayServiceModel, running

ONE = {POOL: 1}


def test_of_a_users_service_all_stays_but_selector_and_other_ports() -> None:
    given = {
        "metadata": {"name": "mine", "labels": {"team": "a"}, "annotations": {"x": "y"}},
        "spec": {
            "type": "NodePort",
            "selector": {"not": "this"},
            "ports": [{"name": "serve", "port": 80, "targetPort": 8000}, {"name": "other", "port": 9}],
        },
    }
    model = running(serveService=given)
    held = model.services["mine"]
    assert held.spec["type"] == "NodePort"
    assert held.spec["ports"] == [{"name": "serve", "port": 80, "targetPort": 8000}]
    assert held.spec["selector"] == {"ray.io/cluster": model.active, "ray.io/serve": "true"}
    assert held.metadata.labels["team"] == "a"


def test_an_address_that_the_heads_service_has_is_kept() -> None:
    service = service_of(group())
    model = running()
    context = ClusterContext(cluster=model.clusters[model.active])
    assert backend.head_manifest(service, context, None)["spec"]["clusterIP"] == "None"
    held = OwnedService(spec={"clusterIP": "10.0.0.1"})
    assert "clusterIP" not in backend.head_manifest(service, context, held)["spec"]


def test_a_head_without_a_port_for_requests_is_refused() -> None:
    def with_ports(*names: str) -> RayService:
        head = {
            "containers": [{"name": "ray", "image": "i", "ports": [{"name": n, "containerPort": 9} for n in names]}]
        }
        body = msgspec.to_builtins(service_of(group()))
        body["spec"]["rayClusterConfig"]["headGroupSpec"] = {"template": {"spec": head}}
        return msgspec.convert(body, RayService)

    assert "name one serve" in backend.port_problem(with_ports("dashboard"))
    assert backend.port_problem(with_ports("serve")) == ""
    assert backend.port_problem(service_of(group())) == ""


def test_both_services_need_names_of_their_own() -> None:
    assert "another name" in backend.name_problem(
        service_of(group(), serveService={"metadata": {"name": "svc-head-svc"}})
    )
    assert backend.name_problem(service_of(group(), serveService={"metadata": {"name": "mine"}})) == ""


def test_a_head_that_is_left_out_gets_no_requests() -> None:
    model = RayServiceModel(service_of(group(), excludeHeadPodFromServeSvc=True))
    model.settle()
    heads = [pod for pod in model.pods.values() if pod.is_head]
    assert [pod.metadata.labels[Label.SERVE.value] for pod in heads] == ["false"]
    assert model.endpoints() == 1


def test_pods_that_do_not_run_go_first() -> None:
    model = running(group(replicas=3))
    pods = [pod for pod in model.pods.values() if not pod.is_head]
    stuck = replace(pods[1], status=replace(pods[1].status, phase="Pending"))
    pods[1] = stuck
    spec = model.clusters[model.active].spec.worker_group_specs[0]
    assert handover.pods_to_go(pods, spec, 2) == (stuck.name,)


def test_what_is_written_for_a_change_of_workers_is_one_patch() -> None:
    model = running(group(replicas=1))
    model.change_cluster(group(replicas=2))
    patches = [action for action in model.reconcile().actions if isinstance(action, PatchCluster)]
    assert len(patches) == 1
    assert CONFIG in model.service.spec.serve_config_v2
