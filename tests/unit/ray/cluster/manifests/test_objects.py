"""What is beside the pods of a RayCluster: Services, ways in, access, certificates, volumes, policies, clean-up."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.ray.cluster.manifests import (
    ClusterContext,
    auth_secret,
    certificates,
    claim_differences,
    gcs_claim,
    head_service,
    headless_service,
    ingress,
    network_policies,
    redis_cleanup_job,
    role,
    role_binding,
    route,
    serve_service,
    service_account,
    service_ports,
)
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.ray.owned import OwnedClaim
from gpu_control_plane.ray.scheduling import PodSchedulingFields
from unit.ray.ray_clusters import UID, Json, env_of, group, head_of, ray_cluster, template


def context(*groups: Json, options: RayOptions | None = None, **rest: Any) -> ClusterContext:
    return ClusterContext(cluster=ray_cluster(*groups, **rest), options=options or RayOptions())


def ports_of(service: Json) -> dict[str, int]:
    return {port["name"]: port["port"] for port in service["spec"]["ports"]}


def one(manifest: Json | None) -> Json:
    assert manifest is not None
    return manifest


# Services

PLAIN = RayOptions()
HEAD_SELECTOR = {
    "ray.io/cluster": "rc",
    "ray.io/node-type": "head",
    "ray.io/identifier": "rc-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}


def test_the_head_is_found_at_its_own_address() -> None:
    service = head_service(context(headServiceAnnotations={"a": "b"}))
    assert service["metadata"]["name"] == "rc-head-svc"
    assert service["metadata"]["labels"] == service["spec"]["selector"] == HEAD_SELECTOR
    assert service["metadata"]["annotations"] == {"a": "b"}
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    ports = {"client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": 8080, "serve": 8000}
    assert list(ports_of(service).items()) == list(ports.items())
    assert {port["appProtocol"] for port in service["spec"]["ports"]} == {"tcp"}


@pytest.mark.parametrize(
    ("head", "options", "headless", "kind"),
    [
        ({}, PLAIN, True, None),
        ({"serviceType": "ClusterIP"}, PLAIN, True, "ClusterIP"),
        ({"serviceType": "NodePort"}, PLAIN, False, "NodePort"),
        ({}, RayOptions(head_cluster_ip_service=True), False, None),
        ({"headService": {}}, PLAIN, False, None),
        ({"headService": {}, "serviceType": "NodePort"}, PLAIN, False, "NodePort"),
        (
            {"headService": {"spec": {"type": "LoadBalancer"}}, "serviceType": "NodePort"},
            RayOptions(),
            False,
            "LoadBalancer",
        ),
    ],
)
def test_the_heads_service_has_an_address_of_its_own_where_it_is_asked_for(
    head: Json, options: RayOptions, *, headless: bool, kind: str | None
) -> None:
    service = head_service(context(head=head, options=options))
    assert (service["spec"].get("clusterIP") == "None") is headless
    assert service["spec"].get("type") == kind


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([], {"client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": 8080, "serve": 8000}),
        (
            [{"name": "gcs", "containerPort": 6380}, {"containerPort": 9000}],
            {"9000-port": 9000, "gcs": 6380, "metrics": 8080},
        ),
        ([{"name": "metrics", "containerPort": 9090}], {"metrics": 9090}),
    ],
)
def test_ports_are_those_of_the_heads_container(ports: list[Json], expected: dict[str, int]) -> None:
    assert list(service_ports(context(head={"template": template(ports=ports)})).items()) == list(expected.items())


def test_a_service_of_the_user_keeps_what_is_not_ours() -> None:
    given_service = {
        "metadata": {
            "name": "own",
            "namespace": "elsewhere",
            "labels": {"mine": "yes", "ray.io/cluster": "other"},
            "annotations": {"a": "mine", "b": "mine"},
        },
        "spec": {
            "selector": {"mine": "yes"},
            "sessionAffinity": "ClientIP",
            "ports": [
                {"name": "mine", "port": 1234},
                {"name": "dashboard", "port": 80, "targetPort": 8265},
                {"name": "x", "port": 8000},
            ],
        },
    }
    cluster = context(head={"headService": given_service}, headServiceAnnotations={"a": "ours"})
    service = head_service(cluster)
    metadata, spec = service["metadata"], service["spec"]
    assert (metadata["name"], metadata["namespace"]) == ("own", "ns")
    assert metadata["labels"] == {**HEAD_SELECTOR, "mine": "yes"}
    assert metadata["annotations"] == {"a": "ours", "b": "mine"}
    assert (spec["selector"], spec["sessionAffinity"]) == (HEAD_SELECTOR, "ClientIP")
    assert list(ports_of(service).items()) == [
        ("mine", 1234),
        ("dashboard", 80),
        ("x", 8000),
        ("client", 10001),
        ("gcs-server", 6379),
        ("metrics", 8080),
    ]
    assert cluster.cluster.spec.head_group_spec.head_service == given_service


def test_the_heads_service_selects_the_labels_that_its_pod_has() -> None:
    held = {**template(), "metadata": {"labels": {"app.kubernetes.io/name": "mine"}}}
    cluster = context(head={"template": held, "labels": {"app.kubernetes.io/created-by": "me"}})
    selector = head_service(cluster)["spec"]["selector"]
    assert selector.items() >= {"app.kubernetes.io/name": "mine", "app.kubernetes.io/created-by": "me"}.items()
    assert selector.items() <= head_of(cluster)["metadata"]["labels"].items()


def test_hosts_of_a_replica_find_each_other_before_they_are_ready() -> None:
    assert headless_service(context(group())) is None
    service = one(headless_service(context(group(), group("hosts", numOfHosts=2))))
    assert service["metadata"]["name"] == "rc-headless"
    assert service["metadata"]["labels"] == {"ray.io/headless-worker-svc": "rc"}
    assert service["spec"] == {
        "clusterIP": "None",
        "type": "ClusterIP",
        "selector": {"ray.io/cluster": "rc", "ray.io/node-type": "worker"},
        "publishNotReadyAddresses": True,
    }


def test_a_cluster_that_serves_by_itself_has_a_service_for_it() -> None:
    asked = {"ray.io/enable-serve-service": "true"}
    grpc = template(ports=[{"name": "serve", "containerPort": 8000}, {"name": "serve-grpc", "containerPort": 9000}])
    service = one(serve_service(context(annotations=asked, head={"template": grpc})))
    assert (service["metadata"]["name"], ports_of(service)) == ("rc-serve-svc", {"serve": 8000, "serve-grpc": 9000})
    assert service["spec"]["selector"] == {"ray.io/cluster": "rc"}
    assert service["metadata"]["labels"] == {
        "ray.io/originated-from-cr-name": "rc",
        "ray.io/originated-from-crd": "RayCluster",
        "ray.io/serve": "rc-serve",
    }
    assert serve_service(context()) is None
    without = template(ports=[{"name": "gcs-server", "containerPort": 6379}])
    assert serve_service(context(annotations=asked, head={"template": without})) is None


# Ways in


def test_the_dashboard_has_an_ingress_where_it_is_asked_for() -> None:
    annotations = {
        "kubernetes.io/ingress.class": "nginx",
        "nginx.ingress.kubernetes.io/rewrite-target": "/",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    made = one(ingress(context(head={"enableIngress": True}, annotations=annotations)))
    assert made["metadata"]["name"] == "rc-head-ingress"
    assert made["metadata"]["annotations"] == {"nginx.ingress.kubernetes.io/rewrite-target": "/"}
    backend = {"service": {"name": "rc-head-svc", "port": {"number": 8265}}}
    assert made["spec"] == {
        "ingressClassName": "nginx",
        "rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
    }
    assert ingress(context()) is None


def test_the_ingress_is_as_its_options_say() -> None:
    options = {"host": "ray.example.org", "path": "/ray", "pathType": "Exact", "tls": [{"secretName": "s"}]}
    held = template(ports=[{"name": "dashboard", "containerPort": 80}])
    made = one(ingress(context(head={"enableIngress": True, "ingressOptions": options, "template": held})))
    (rule,) = made["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("ray.example.org", "/ray", "Exact")
    assert path["backend"]["service"]["port"] == {"number": 80}
    assert made["spec"]["tls"] == [{"secretName": "s"}]


def test_openshift_has_a_route_unless_it_is_to_have_an_ingress() -> None:
    asked = {"enableIngress": True}
    with_route = context(head=asked, options=RayOptions(openshift=True))
    with_ingress = context(head=asked, options=RayOptions(openshift=True, ingress_on_openshift=True))
    assert ingress(with_route) is None
    assert route(with_ingress) is None
    made = one(route(with_route))
    assert (made["kind"], made["metadata"]["name"]) == ("Route", "rc-head-route")
    assert made["spec"]["to"] == {"kind": "Service", "name": "rc-head-svc", "weight": 100}
    assert one(ingress(with_ingress))["kind"] == "Ingress"


# Access


def test_the_autoscaler_may_change_its_cluster_and_read_pods() -> None:
    scaled = context(enableInTreeAutoscaling=True)
    assert one(service_account(scaled))["metadata"]["name"] == "rc"
    assert one(role(scaled))["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
    ]
    binding = one(role_binding(scaled))
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "rc"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rc", "namespace": "ns"}]
    assert (service_account(context()), role(context()), role_binding(context())) == (None, None, None)


def test_a_service_account_of_the_user_is_bound_and_not_made() -> None:
    held = template()
    held["spec"]["serviceAccountName"] = "mine"
    scaled = context(head={"template": held}, enableInTreeAutoscaling=True)
    assert service_account(scaled) is None
    assert one(role_binding(scaled))["subjects"][0]["name"] == "mine"
    assert head_of(scaled)["spec"]["serviceAccountName"] == "mine"


@pytest.mark.parametrize(
    ("options", "made"),
    [
        ({"mode": "token"}, True),
        ({}, True),
        ({"mode": "disabled"}, False),
        ({"mode": "token", "secretName": "own"}, False),
        ({"mode": "token", "enableK8sTokenAuth": True}, False),
        (None, False),
    ],
)
def test_a_token_is_made_where_none_is_given(options: Json | None, *, made: bool) -> None:
    secret = auth_secret(context(authOptions=options), bytes(range(32)))
    assert (secret is not None) is made
    if secret is not None:
        assert (secret["metadata"]["name"], secret["metadata"]["labels"]) == ("rc", {"ray.io/cluster": "rc"})
        assert secret["stringData"] == {"auth_token": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}


def test_certificates_name_the_pods_that_there_are() -> None:
    made = certificates(
        context(tlsOptions={"enabled": True}), ["10.0.0.2", ""], ["10.0.0.10", "10.0.0.9", "fd00::1", "10.0.0.9"]
    )
    assert [(each["kind"], each["metadata"]["name"]) for each in made] == [
        ("Issuer", "ray-selfsigned-issuer-rc"),
        ("Certificate", "ray-ca-certificate-rc"),
        ("Issuer", "ray-ca-issuer-rc"),
        ("Certificate", "ray-head-cert-rc"),
        ("Certificate", "ray-worker-cert-rc"),
    ]
    authority, _, head, worker = (each["spec"] for each in made[1:])
    assert (authority["isCA"], authority["secretName"]) == (True, f"rc-ca-secret-{UID[:8]}")
    assert made[2]["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert head["dnsNames"] == ["localhost", "rc-head-svc.ns.svc.cluster.local"]
    assert head["ipAddresses"] == ["10.0.0.2", "127.0.0.1"]
    assert worker["ipAddresses"] == ["10.0.0.9", "10.0.0.10", "127.0.0.1", "fd00::1"]
    for leaf, secret in ((head, "ray-head-secret-rc"), (worker, "ray-worker-secret-rc")):
        assert (leaf["secretName"], leaf["duration"], leaf["renewBefore"]) == (secret, "2160h0m0s", "360h0m0s")
    assert certificates(context(), [], []) == []


# The volume of the GCS


def test_a_volume_is_claimed_for_rocksdb() -> None:
    claim = one(gcs_claim(context(gcsFaultToleranceOptions={"backend": "rocksdb"})))
    assert (claim["metadata"]["name"], claim["metadata"]["labels"]) == ("rc-gcs-pvc", {"ray.io/cluster": "rc"})
    assert claim["metadata"]["ownerReferences"][0]["uid"] == UID
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ({}, []),
        ({"size": "1024Mi"}, []),
        ({"size": "500Mi"}, []),
        ({"size": "2Gi"}, ["it asks for 1Gi, and the spec for 2Gi"]),
        ({"storageClassName": "fast"}, ["its storageClassName is slow, and that of the spec fast"]),
        (
            {"accessModes": ["ReadWriteMany"]},
            ["its accessModes is ReadWriteOnce, and that of the spec ReadWriteMany"],
        ),
    ],
)
def test_what_of_a_volume_is_not_as_the_spec_says_is_known(storage: Json, said: list[str]) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    held = msgspec.convert({"metadata": {"name": "rc-gcs-pvc"}, "spec": spec}, OwnedClaim)
    claim = one(gcs_claim(context(gcsFaultToleranceOptions={"backend": "rocksdb", "storage": storage})))
    assert claim_differences(held, claim) == said


def test_a_volume_that_is_kept_has_no_owner() -> None:
    storage = {"size": "5Gi", "storageClassName": "fast", "accessModes": ["ReadWriteMany"], "deletionPolicy": "Retain"}
    claim = one(gcs_claim(context(gcsFaultToleranceOptions={"backend": "rocksdb", "storage": storage})))
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "5Gi"}},
    }


@pytest.mark.parametrize(
    "options",
    [None, {"redisAddress": "redis:6379"}, {"backend": "rocksdb", "storage": {"claimName": "mine"}}],
)
def test_no_volume_is_claimed_without_need(options: Json | None) -> None:
    assert gcs_claim(context(gcsFaultToleranceOptions=options)) is None


# NetworkPolicies

WITHIN = {"podSelector": {"matchLabels": {"ray.io/cluster": "rc"}}}


@pytest.mark.parametrize(
    ("mode", "types"),
    [
        ("", ["Ingress", "Egress"]),
        ("DenyAll", ["Ingress", "Egress"]),
        ("DenyAllIngress", ["Ingress"]),
        ("DenyAllEgress", ["Egress"]),
    ],
)
def test_pods_of_a_cluster_always_reach_each_other(mode: str, types: list[str]) -> None:
    made = network_policies(context(group("a"), group("b"), networkPolicy={"mode": mode}))
    assert [each["metadata"]["name"] for each in made] == ["rc-head", "rc-workers-a", "rc-workers-b"]
    for each in made:
        assert each["spec"]["policyTypes"] == types
        assert each["spec"].get("ingress") == ([{"from": [WITHIN]}] if "Ingress" in types else None)
        assert each["spec"].get("egress") == ([{"to": [WITHIN]}] if "Egress" in types else None)
    selectors = [each["spec"]["podSelector"]["matchLabels"] for each in made]
    assert selectors[0] == {"ray.io/cluster": "rc", "ray.io/node-type": "head"}
    assert selectors[1] == {"ray.io/cluster": "rc", "ray.io/node-type": "worker", "ray.io/group": "a"}
    assert [each["metadata"]["labels"]["ray.io/group"] for each in made] == ["headgroup", "a", "b"]


def test_rules_of_a_group_take_the_place_of_those_of_all_workers() -> None:
    dns = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}
    rules = {
        "worker": {"egressRules": [dns]},
        "head": {"ingressRules": [{"from": [{"podSelector": {}}]}]},
        "workerGroups": [{"groupName": "b"}],
    }
    head, first, second = network_policies(context(group("a"), group("b"), networkPolicy=rules))
    kept = {**dns, "ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}
    assert first["spec"]["egress"] == [{"to": [WITHIN]}, kept]
    assert second["spec"]["egress"] == [{"to": [WITHIN]}]
    assert head["spec"]["ingress"] == [{"from": [WITHIN]}, {"from": [{"podSelector": {}}]}]
    assert network_policies(context(group("a"))) == []


def test_the_submitter_of_a_job_reaches_the_dashboard() -> None:
    plain = ray_cluster(labels={"ray.io/job-submission-mode": "K8sJobMode"}, networkPolicy={})
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "1", "controller": True}
    document = msgspec.to_builtins(plain)
    document["metadata"]["ownerReferences"] = [owner]
    (head,) = network_policies(ClusterContext(cluster=msgspec.convert(document, RayCluster)))
    labels = {"ray.io/originated-from-cr-name": "job", "ray.io/originated-from-crd": "RayJob"}
    assert head["spec"]["ingress"][1] == {
        "from": [{"podSelector": {"matchLabels": labels}}],
        "ports": [{"protocol": "TCP", "port": 8265}],
    }
    (without,) = network_policies(ClusterContext(cluster=plain))
    assert len(without["spec"]["ingress"]) == 1


# Clean-up


def test_the_cleanup_of_redis_is_the_head_without_ray() -> None:
    held = template({"cpu": 8, "nvidia.com/gpu": 1, "memory": "64Gi"})
    held["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    held["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    made = redis_cleanup_job(
        ClusterContext(
            cluster=ray_cluster(
                head={"template": held},
                enableInTreeAutoscaling=True,
                tlsOptions={"enabled": True},
                gcsFaultToleranceOptions={"redisAddress": "redis:6379", "redisUsername": {"value": "ray"}},
            ),
            scheduling_fields={
                "headgroup": PodSchedulingFields(
                    scheduler_name="volcano", labels={"queue": "q"}, annotations={"pg": "x"}
                )
            },
        )
    )
    assert (made["kind"], made["metadata"]["name"]) == ("Job", "rc-redis-cleanup")
    assert (made["spec"]["backoffLimit"], made["spec"]["activeDeadlineSeconds"]) == (0, 300)
    metadata, spec = made["spec"]["template"]["metadata"], made["spec"]["template"]["spec"]
    assert metadata["labels"]["ray.io/node-type"] == "redis-cleanup"
    assert "queue" not in metadata["labels"]
    assert not {"pg", "gpu.deckhouse.io/template-hash"} & metadata["annotations"].keys()
    assert (spec["restartPolicy"], spec.get("schedulerName")) == ("Never", None)
    assert not {"initContainers", "resourceClaims"} & spec.keys()
    (container,) = spec["containers"]
    assert not {"livenessProbe", "readinessProbe"} & container.keys()
    assert container["resources"] == {kind: {"cpu": "200m", "memory": "256Mi"} for kind in ("limits", "requests")}
    assert "cleanup_redis_storage" in container["args"][0]
    assert "username=os.getenv('REDIS_USERNAME', parsed.username)" in container["args"][0]
    assert (
        env_of(container).items()
        >= {
            "RAY_REDIS_ADDRESS": "redis:6379",
            "RAY_external_storage_namespace": UID,
            "RAY_redis_db_connect_retries": "120",
            "RAY_redis_db_connect_wait_milliseconds": "500",
        }.items()
    )


@pytest.mark.parametrize("kubernetes", [False, True])
@pytest.mark.parametrize("account", ["", "mine"])
def test_the_cleanup_of_redis_needs_nothing_that_goes_with_its_cluster(kubernetes: bool, account: str) -> None:
    held = template()
    if account:
        held["spec"]["serviceAccountName"] = account
    everything = context(
        head={"template": held},
        rayVersion="2.55.0",
        enableInTreeAutoscaling=True,
        authOptions={"mode": "token", "enableK8sTokenAuth": kubernetes},
        tlsOptions={"enabled": True},
        gcsFaultToleranceOptions={"redisAddress": "redis:6379"},
    )
    spec = redis_cleanup_job(everything)["spec"]["template"]["spec"]
    assert spec.get("serviceAccountName", "") == account
    assert not [held for held in spec["containers"][0]["env"] if "secretKeyRef" in held.get("valueFrom", {})]
    assert not [volume for volume in spec.get("volumes", ()) if not {"emptyDir"} & volume.keys()]


def test_the_cleanup_of_redis_is_found_whatever_the_template_says_and_blocks_no_deletion() -> None:
    head = {"template": template(), "labels": {"app.kubernetes.io/created-by": "me"}}
    made = redis_cleanup_job(context(head=head, gcsFaultToleranceOptions={"redisAddress": "redis:6379"}))
    assert made["metadata"]["labels"]["app.kubernetes.io/created-by"] == "kuberay-operator"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (UID, True, False)


# All of them


@given(name=st.from_regex(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?", fullmatch=True))
def test_names_and_labels_fit(name: str) -> None:
    everything = context(
        group(numOfHosts=2),
        name=name,
        head={"enableIngress": True},
        annotations={"ray.io/enable-serve-service": "true"},
        enableInTreeAutoscaling=True,
        authOptions={},
        tlsOptions={"enabled": True},
        networkPolicy={},
        gcsFaultToleranceOptions={"backend": "rocksdb"},
    )
    labelled = [
        head_service(everything),
        headless_service(everything),
        serve_service(everything),
        ingress(everything),
        service_account(everything),
        role(everything),
        role_binding(everything),
        auth_secret(everything, b""),
        gcs_claim(everything),
        redis_cleanup_job(everything),
        *network_policies(everything),
        *certificates(everything, [], []),
    ]
    for each in map(one, labelled):
        metadata = each["metadata"]
        limit = 63 if each["kind"] in ("Service", "Job") else 253
        assert 0 < len(metadata["name"]) <= limit
        assert metadata["name"][0].isalpha()
        assert metadata["ownerReferences"][0]["uid"] == UID
        assert all(len(value) <= 63 for value in metadata["labels"].values())
