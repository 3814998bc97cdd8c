"""Webhooks called by a real API server, with failure policy Fail: what goes wrong on our side is seen at once."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import aiohttp
import msgspec
import pytest

from gpu_control_plane.kube import Cache, Client, Key, Object, Resource, Selection
from gpu_control_plane.kube.admission import AdmissionRequest, AdmissionResponse, Operation, allow, change, deny
from gpu_control_plane.kube.ca_bundle import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    WebhookConfiguration,
    ensure_ca_bundle,
    publisher,
)
from gpu_control_plane.kube.certificate_rotation import RotationPolicy, Subject
from gpu_control_plane.kube.certificate_secret import Secret, ServingCertificates
from gpu_control_plane.kube.certificates import signed_by, split_pem
from gpu_control_plane.kube.errors import Forbidden, NotFound, ServerError, Unreachable
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.kube.webhooks import WebhookServer, serve_webhooks
from integration.kinds import configmap
from waiting import until, until_async

SUBJECT = Subject("webhooks-of-a-test", ("127.0.0.1",))
LONG = RotationPolicy()


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}


class Clerk:
    """The handler under test: what it does is written in the object it is asked about."""

    def __init__(self) -> None:
        self.seen: list[AdmissionRequest[ConfigMap]] = []

    async def __call__(self, request: AdmissionRequest[ConfigMap]) -> AdmissionResponse:
        self.seen.append(request)
        wish = (request.object or request.old_object or ConfigMap()).data.get("wish")
        if wish == "deny":
            return deny("this one is taken; choose another name")
        if wish == "fail":
            raise ZeroDivisionError
        if wish == "warn":
            return allow(warnings=["this will not end well"])
        return allow()

    async def add_label(self, request: AdmissionRequest[ConfigMap]) -> AdmissionResponse:
        if request.operation is Operation.DELETE:
            return allow()
        document = request.document()
        metadata = document["metadata"]
        assert isinstance(metadata, dict)
        return change(document | {"metadata": metadata | {"labels": {"touched/by": "webhook"}}})


class Setup(msgspec.Struct):
    """One server with its certificates and the configurations by which it is called."""

    clerk: Clerk
    server: WebhookServer
    certificates: ServingCertificates
    name: str


def webhook(namespace: str, url: str, policy: str = "Fail") -> dict[str, object]:
    return {
        "name": "configmaps.example.org",
        "clientConfig": {"url": url},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["configmaps"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }


def certificates(
    client: Client, namespace: str, configurations: Mapping[type[WebhookConfiguration], str], policy: RotationPolicy
) -> ServingCertificates:
    publish = publisher(client, list(configurations.items()))
    return ServingCertificates(client, Key("webhook-certificates", namespace), SUBJECT, publish, policy=policy)


@asynccontextmanager
async def serving(
    client: Client,
    namespace: str,
    *,
    failure_policy: str = "Fail",
    policy: RotationPolicy = LONG,
    serve: Callable[[WebhookServer, ServingCertificates], Coroutine[None, None, None]] = serve_webhooks,
) -> AsyncIterator[Setup]:
    clerk = Clerk()
    name = f"test-{secrets.token_hex(4)}.example.org"
    kinds = (ValidatingWebhookConfiguration, MutatingWebhookConfiguration)
    held = certificates(client, namespace, dict.fromkeys(kinds, name), policy)
    server = WebhookServer(held.tls, host="127.0.0.1", port=0, keep_connections=False)
    server.validating("/validate", ConfigMap, clerk)
    server.mutating("/mutate", ConfigMap, clerk.add_label)
    service = asyncio.create_task(serve(server, held))
    await until(lambda: server.port, saying="the webhooks are served")
    try:
        for kind, path in zip(kinds, ("validate", "mutate"), strict=True):
            hook = webhook(namespace, f"https://127.0.0.1:{server.port}/{path}", failure_policy)
            await client.create(kind, {"metadata": {"name": name}, "webhooks": [hook]})
        for kind in kinds:
            await ensure_ca_bundle(client, kind, name, held.bundle or b"")
        await until_async(lambda: _works(client, namespace, clerk), saying="the API server calls the webhooks")
        clerk.seen.clear()
        yield Setup(clerk, server, held, name)
    finally:
        for kind in kinds:
            await client.delete(kind, name)
        service.cancel()
        await asyncio.wait((service,))


async def _works(client: Client, namespace: str, clerk: Clerk) -> bool:
    """Whether the API server has noticed both configurations, one apart from the other, and their bundle."""
    try:
        made = await client.create(ConfigMap, {"metadata": {"generateName": "probe-"}}, namespace)
    except ServerError:
        return False
    return "touched/by" in made.metadata.labels and bool(clerk.seen)


async def test_what_is_allowed_passes(client: Client, namespace: str) -> None:
    async with serving(client, namespace) as setup:
        await client.create(ConfigMap, configmap("fine"), namespace)
        request = setup.clerk.seen[-1]
        assert (request.operation, request.name, request.namespace) == (Operation.CREATE, "fine", namespace)
        assert "system:masters" in request.user.groups
        assert request.options.kind == "CreateOptions"


async def test_a_denial_reaches_the_person_in_its_own_words(client: Client, namespace: str) -> None:
    async with serving(client, namespace):
        with pytest.raises(Forbidden, match="denied the request: this one is taken; choose another name"):
            await client.create(ConfigMap, configmap("taken", wish="deny"), namespace)
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "taken", namespace)


async def test_a_change_lands(client: Client, namespace: str) -> None:
    async with serving(client, namespace):
        await client.create(ConfigMap, configmap("plain", kept="as it is"), namespace)
        stored = await client.get(ConfigMap, "plain", namespace)
        assert stored.metadata.labels == {"touched/by": "webhook"}
        assert stored.data == {"kept": "as it is"}


async def test_updates_and_deletes_show_the_old_object(client: Client, namespace: str) -> None:
    async with serving(client, namespace) as setup:
        await client.create(ConfigMap, configmap("one", colour="red"), namespace)
        await client.patch(ConfigMap, "one", {"data": {"colour": "blue"}}, namespace=namespace)
        await client.delete(ConfigMap, "one", namespace)
        _, update, delete = setup.clerk.seen
        assert update.old_object is not None
        assert update.object is not None
        assert (update.old_object.data["colour"], update.object.data["colour"]) == ("red", "blue")
        assert delete.object is None
        assert delete.old_object is not None
        assert delete.old_object.data["colour"] == "blue"


async def post(client: Client, namespace: str, body: object, query: str = "") -> aiohttp.ClientResponse:
    """A bare request, for what a typed client does not show."""
    access = await client.config.access()
    url = f"{client.config.server}{ConfigMap.resource.path(namespace)}{query}"
    async with aiohttp.ClientSession() as session, session.post(url, json=body, ssl=access.ssl) as response:
        await response.read()
        return response


async def test_a_warning_is_shown_to_the_caller(client: Client, namespace: str) -> None:
    async with serving(client, namespace):
        response = await post(client, namespace, configmap("risky", wish="warn"))
        assert response.status == 201
        assert response.headers.getall("Warning") == ['299 - "this will not end well"']


async def test_a_dry_run_is_announced_and_stores_nothing(client: Client, namespace: str) -> None:
    async with serving(client, namespace) as setup:
        response = await post(client, namespace, configmap("trial"), "?dryRun=All")
        assert response.status == 201
        assert setup.clerk.seen[-1].dry_run
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "trial", namespace)


async def test_with_policy_fail_a_bug_refuses_in_words(client: Client, namespace: str) -> None:
    async with serving(client, namespace):
        with pytest.raises(ServerError, match=r"The webhook /validate failed \(ZeroDivisionError\)"):
            await client.create(ConfigMap, configmap("unlucky", wish="fail"), namespace)


async def test_with_policy_ignore_a_bug_refuses_nothing(client: Client, namespace: str) -> None:
    async with serving(client, namespace, failure_policy="Ignore") as setup:
        await client.create(ConfigMap, configmap("lucky", wish="fail"), namespace)
        assert setup.clerk.seen[-1].name == "lucky"


async def test_a_removed_bundle_is_repaired_and_nothing_is_written_twice(client: Client, namespace: str) -> None:
    async with serving(client, namespace) as setup:
        kind, bundle = ValidatingWebhookConfiguration, setup.certificates.bundle
        assert bundle is not None
        before = await client.get(kind, setup.name)
        assert not await ensure_ca_bundle(client, kind, setup.name, bundle)
        stripped = [msgspec.convert(hook, dict[str, object]) for hook in before.webhooks]
        for hook in stripped:
            hook["clientConfig"] = {"url": "https://127.0.0.1:1/elsewhere", "caBundle": None}
        removed = await client.patch(kind, setup.name, {"webhooks": stripped})
        assert not removed.trusts(bundle)
        assert await ensure_ca_bundle(client, kind, setup.name, bundle)
        repaired = await client.get(kind, setup.name)
        assert repaired.trusts(bundle)
        assert [hook["rules"] for hook in repaired.webhooks] == [hook["rules"] for hook in before.webhooks]


async def test_a_configuration_that_is_not_there_needs_nothing(client: Client) -> None:
    assert not await ensure_ca_bundle(client, MutatingWebhookConfiguration, "gone.example.org", b"bundle")


async def test_replicas_that_race_agree_on_one_authority(client: Client, namespace: str) -> None:
    replicas = [certificates(client, namespace, {}, LONG) for _ in range(6)]
    await asyncio.gather(*(replica.sync() for replica in replicas))
    assert len({replica.bundle for replica in replicas}) == 1
    stored = await client.get(Secret, "webhook-certificates", namespace)
    assert stored.data["ca.crt"] == replicas[0].bundle
    assert stored.type == "kubernetes.io/tls"


async def test_replicas_that_race_to_renew_agree_too(client: Client, namespace: str) -> None:
    moment = datetime.now(UTC)
    replicas = [certificates(client, namespace, {}, LONG) for _ in range(4)]
    for replica in replicas:
        replica._now = lambda: moment
    await asyncio.gather(*(replica.sync() for replica in replicas))
    moment += LONG.authority_life * 0.7
    await asyncio.gather(*(replica.sync() for replica in replicas))
    await asyncio.gather(*(replica.sync() for replica in replicas))
    bundles = {replica.bundle for replica in replicas}
    assert len(bundles) == 1
    assert len(split_pem(bundles.pop() or b"")) == 2, "one successor, not one per replica"


@pytest.mark.parametrize("damage", [{"tls.key": ""}, {"ca.crt": "bm9uc2Vuc2U="}, {"ca.key": ""}], ids=str)
async def test_a_damaged_secret_is_replaced(client: Client, namespace: str, damage: dict[str, str]) -> None:
    first = certificates(client, namespace, {}, LONG)
    await first.sync()
    await client.patch(Secret, "webhook-certificates", {"data": damage}, namespace=namespace)
    second = certificates(client, namespace, {}, LONG)
    await second.sync()
    await first.sync()
    assert first.bundle == second.bundle


async def test_certificates_are_renewed_even_while_the_bundle_cannot_be_published(
    client: Client, namespace: str
) -> None:
    """An authority that is trusted already goes on signing; a new one is not used before it is trusted."""
    moment = datetime.now(UTC)

    async def publish(_bundle: bytes) -> bool:
        raise Unreachable("no answer")

    held = ServingCertificates(client, Key("own", namespace), SUBJECT, publish, policy=LONG, now=lambda: moment)
    served: set[bytes] = set()
    for _ in range(12):
        with pytest.raises(Unreachable, match="no answer"):
            await held.sync()
        stored = await client.get(Secret, "own", namespace)
        served.add(stored.data["tls.crt"])
        assert signed_by(stored.data["tls.crt"], split_pem(stored.data["ca.crt"])[0])
        assert held.problem() is None
        moment += LONG.authority_life / 13
    assert len(served) > 5
    assert len(split_pem(held.bundle or b"")) == 2


async def serve_sleepily(server: WebhookServer, certificates: ServingCertificates) -> None:
    """A replica that learns of changes seconds late, as one does whose machine is busy."""
    await certificates.sync()
    async with server:
        while True:
            await asyncio.sleep(3)
            await certificates.sync()


async def test_no_call_fails_while_certificates_and_authorities_change(client: Client, namespace: str) -> None:
    """Years in seconds. One replica renews; the other one, which is called, reads the Secret now and then."""
    policy = RotationPolicy(
        authority_life=timedelta(seconds=27),
        serving_life=timedelta(seconds=12),
        renew_below=0.7,
        propagation=timedelta(seconds=2.25),
    )
    async with (
        serving(client, namespace, policy=policy, serve=serve_sleepily) as setup,
        asyncio.TaskGroup() as group,
    ):
        kinds = (ValidatingWebhookConfiguration, MutatingWebhookConfiguration)
        other = certificates(client, namespace, dict.fromkeys(kinds, setup.name), policy)
        watched = Cache(Secret, ApiSource(client, Secret, Selection(namespace)))
        authorities: list[bytes] = []
        trusted: list[bytes] = []
        served: set[bytes] = set()

        def follow(_old: Secret | None, new: Secret | None) -> None:
            if new is not None and "ca.crt" in new.data:
                trusted[:] = split_pem(new.data["ca.crt"])
                authorities.extend(set(trusted) - set(authorities))
                served.add(new.data["tls.crt"])
                other.wake()

        def seen_it_all() -> bool:
            return len(authorities) >= 3 and len(served) >= 5 and authorities[0] not in trusted

        watched.on_change(follow)
        tasks = [group.create_task(task) for task in (watched.run(), other.run())]
        calls = 0
        async with asyncio.timeout(120):
            while not seen_it_all():
                await client.create(ConfigMap, {"metadata": {"generateName": "call-"}}, namespace)
                calls += 1
        for task in tasks:
            task.cancel()
        assert len(setup.clerk.seen) >= calls > 50
