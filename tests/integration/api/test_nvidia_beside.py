"""Beside NVIDIA's own CRDs: they are left as they are, and what they hold is neither lost nor in anybody's way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpu_control_plane import __version__
from gpu_control_plane.api import crd_manifest
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nvidia import DEFINITIONS, StoredClusterPolicy, UnreadableSpec
from gpu_control_plane.installation.crds import INSTALLED, MANAGER, install
from gpu_control_plane.kube import Cache, Client, FieldManager
from gpu_control_plane.kube.crd import CustomResourceDefinition, Definition
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.watch import ApiSource
from integration.api.crds import foreign, remove_crd
from integration.api.rows import changed
from unit.api.nvidia.stock import stock_policy
from waiting import until_async

POLICIES = DEFINITIONS[0]
FOREIGN = FieldManager("helm")
LEFT_ALONE = "left alone. Another product installed it. Remove it, or install with take_over to replace it."

each_kind = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)


@pytest.fixture(autouse=True)
async def restored(client: Client) -> AsyncIterator[None]:
    yield
    for definition in DEFINITIONS:
        await remove_crd(client, definition.name)
    for definition in INSTALLED:
        await client.apply(CustomResourceDefinition, definition.name, crd_manifest(definition), manager=MANAGER)
    await install(client)


@each_kind
async def test_a_crd_that_nvidia_installed_stays_until_it_is_taken_over(client: Client, definition: Definition) -> None:
    await remove_crd(client, definition.name)
    before = await client.apply(CustomResourceDefinition, definition.name, foreign(definition), manager=FOREIGN)
    for version in (__version__, "999.0.0"):
        assert f"{definition.name}: {LEFT_ALONE}" in await install(client, version=version)
    kept = await client.get(CustomResourceDefinition, definition.name)
    assert kept.metadata.generation == before.metadata.generation
    assert f"{definition.name}: updated" in await install(client, take_over=True)
    assert f"{definition.name}: up to date" in await install(client, take_over=True)


@each_kind
async def test_a_crd_that_nvidia_put_over_ours_stays(client: Client, definition: Definition) -> None:
    await client.apply(CustomResourceDefinition, definition.name, foreign(definition), manager=FOREIGN)
    seen = await client.get(CustomResourceDefinition, definition.name)
    assert seen.metadata.annotations[Annotation.CRD_VERSION] == __version__
    assert f"{definition.name}: {LEFT_ALONE}" in await install(client)


@each_kind
async def test_a_newer_release_of_ours_is_never_taken_back(client: Client, definition: Definition) -> None:
    await client.apply(CustomResourceDefinition, definition.name, crd_manifest(definition, "999.0.0"), manager=MANAGER)
    for take_over in (False, True):
        (sentence,) = [one for one in await install(client, take_over=take_over) if one.startswith(definition.name)]
        assert "Release 999.0.0 installed it" in sentence


async def test_an_object_with_foreign_types_is_held_and_complained_about(client: Client) -> None:
    """NVIDIA's CRD may allow what our types do not; other objects are read all the same, also after a take-over."""
    await remove_crd(client, POLICIES.name)
    await client.apply(CustomResourceDefinition, POLICIES.name, foreign(POLICIES), manager=FOREIGN)
    await _served(client)
    odd = changed(stock_policy(), {"metadata": {"name": "odd"}, "spec.driver.enabled": "yes", "spec.driver.shiny": 1})
    await client.create(StoredClusterPolicy, odd)
    await client.create(StoredClusterPolicy, changed(stock_policy(), {"metadata": {"name": "plain"}}))
    assert await _watched(client) == {"odd", "plain"}
    for take_over in (False, True):
        await install(client, take_over=take_over)
        stored = {one.name: one for one in await client.list(StoredClusterPolicy)}
        assert stored["plain"].read().unknown == ()
        with pytest.raises(UnreadableSpec, match=r"spec\.driver\.enabled: this is of type str, and should be bool"):
            stored["odd"].read()
    mended = await client.patch(StoredClusterPolicy, "odd", {"spec": {"driver": {"enabled": True}}})
    assert mended.read().unknown == ("driver.shiny",)


async def _watched(client: Client) -> set[str]:
    """Names of the policies that a cache holds."""
    cache = Cache(StoredClusterPolicy, ApiSource(client, StoredClusterPolicy), metrics=client.metrics)
    task = asyncio.create_task(cache.run())
    await asyncio.wait_for(cache.synced(), 60)
    task.cancel()
    return {item.name for item in cache}


async def _served(client: Client) -> None:
    async def answers() -> bool:
        try:
            await client.list(StoredClusterPolicy)
        except NotFound:
            return False
        return True

    await until_async(answers, saying="the kind is served")
