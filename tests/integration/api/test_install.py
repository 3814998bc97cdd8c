"""Installing is safe to repeat, and never takes a step back."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fault_proxy import Fault, FaultProxy
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane import __version__
from gpu_control_plane.api import DEFINITIONS, crd_manifest
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.installation.crds import (
    GENERATED_MARK,
    INSTALLED,
    MANAGER,
    NODE_FEATURE,
    NotServed,
    install,
    install_crds,
)
from gpu_control_plane.kube import Client, FieldManager
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.local import Cluster
from integration.api.crds import remove_crd

FIRST = DEFINITIONS[0]
SHARED_NAME = "widgets.gpu.deckhouse.io"


@pytest.fixture(autouse=True)
async def restored(client: Client) -> AsyncIterator[None]:
    yield
    await install(client, take_over=True, version="999.0.0")
    for definition in INSTALLED:
        await client.apply(CustomResourceDefinition, definition.name, crd_manifest(definition), manager=MANAGER)


async def test_installing_again_changes_nothing(client: Client) -> None:
    before = await client.get(CustomResourceDefinition, FIRST.name)
    sentences = await install(client)
    after = await client.get(CustomResourceDefinition, FIRST.name)
    names = [*(definition.name for definition in INSTALLED), f"namespace {NAMESPACE}"]
    assert sentences == [f"{name}: up to date" for name in names]
    assert after.metadata.resource_version == before.metadata.resource_version


async def test_the_first_installation_says_so(client: Client) -> None:
    await remove_crd(client, FIRST.name)
    assert (await install(client))[0] == f"{FIRST.name}: created"


async def test_a_newer_release_is_left_alone(client: Client) -> None:
    await install(client, version="7.0.0")
    sentences = await install(client, version=__version__)
    seen = await client.get(CustomResourceDefinition, FIRST.name)
    assert sentences[0] == f"{FIRST.name}: left alone. Release 7.0.0 installed it, which is newer than {__version__}."
    assert seen.metadata.annotations[Annotation.CRD_VERSION] == "7.0.0"


async def test_an_older_release_is_replaced(client: Client) -> None:
    older = crd_manifest(FIRST, "0.0.1")
    older["spec"]["names"]["shortNames"] = ["gdev"]
    await client.apply(CustomResourceDefinition, FIRST.name, older, manager=MANAGER)
    assert (await install(client))[0] == f"{FIRST.name}: updated"


@pytest.mark.parametrize("mark", [None, "mine"])
async def test_a_crd_of_somebody_else_is_left_alone_unless_told(client: Client, mark: str | None) -> None:
    await client.patch(
        CustomResourceDefinition, FIRST.name, {"metadata": {"annotations": {Annotation.CRD_VERSION: mark}}}
    )
    assert "Another product installed it" in (await install(client))[0]
    assert (await install(client, take_over=True))[0] == f"{FIRST.name}: up to date"


async def test_it_returns_when_every_kind_is_served_and_not_when_that_is_promised(client: Client) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as behind:
        path = f"/apis/{FIRST.resource.api_version}"
        late = proxy.plant(Fault(when=lambda request: request.path == path, status=404, reason="NotFound", times=5))
        await install(behind)
        assert late.spent


async def test_names_taken_by_another_kind_are_reported(client: Client) -> None:
    await remove_crd(client, FIRST.name)
    await client.apply(CustomResourceDefinition, SHARED_NAME, _squatter(), manager=FieldManager("tests"))
    with pytest.raises(NotServed, match=f"{FIRST.name} was applied, but the API server does not serve it"):
        await install(client, timeout=1.0)
    await remove_crd(client, SHARED_NAME)
    assert (await install(client))[0].startswith(FIRST.name)


async def test_replicas_that_install_at_the_same_time_agree(client: Client) -> None:
    await remove_crd(client, FIRST.name)
    answers = await asyncio.gather(*(install(client) for _ in range(4)))
    assert all(answer[0].startswith(FIRST.name) for answer in answers)
    assert (await install(client))[0] == f"{FIRST.name}: up to date"


def test_programs_without_a_loop_install_too(api_server: Cluster) -> None:
    assert len(install_crds(api_server.kubeconfig)) == len(INSTALLED) + 1


@pytest.mark.parametrize("mark", [{Annotation.CRD_VERSION.value: None}, {GENERATED_MARK: "v0.18.0"}])
async def test_the_crd_of_node_feature_discovery_is_never_touched(client: Client, mark: dict[str, str | None]) -> None:
    """Whether it was there first, or was put over ours."""
    await client.patch(CustomResourceDefinition, NODE_FEATURE.name, {"metadata": {"annotations": mark}})
    before = await client.get(CustomResourceDefinition, NODE_FEATURE.name)
    for take_over in (False, True):
        sentences = await install(client, take_over=take_over, version="8.0.0")
        assert f"{NODE_FEATURE.name}: left alone. Node Feature Discovery installed it." in sentences
    assert await client.get(CustomResourceDefinition, NODE_FEATURE.name) == before
    ours: dict[str, str | None] = {GENERATED_MARK: None, Annotation.CRD_VERSION.value: __version__}
    await client.patch(CustomResourceDefinition, NODE_FEATURE.name, {"metadata": {"annotations": ours}})


def _squatter() -> dict[str, object]:
    """A CRD of our group that has taken the short names of the first kind."""
    names = {"kind": "GPUDevice", "plural": "widgets", "singular": "widget", "shortNames": ["gdev"]}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "gpu.deckhouse.io", "names": names, "scope": "Cluster", "versions": [version]}
    return {"spec": spec}
