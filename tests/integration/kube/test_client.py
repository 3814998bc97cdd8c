"""Reads and writes against a real API server: guarded, with owned fields, and with distinct errors."""

from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from fault_proxy import Fault, FaultProxy
from gpu_control_plane.kube import (
    Applier,
    Client,
    FieldManager,
    Selection,
    add_finalizer,
    load_config,
    remove_finalizer,
)
from gpu_control_plane.kube.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
    StaleWrite,
    TooManyRequests,
    Unreachable,
)
from gpu_control_plane.local import Cluster
from integration.kinds import ConfigMap, Missing, Pod, configmap
from waiting import until_async


class Share(msgspec.Struct):
    """One component's share of a ConfigMap."""

    data: dict[str, str] | UnsetType = UNSET


async def test_a_created_object_is_read_back_and_deleted(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("one", colour="red"), namespace)
    read = await client.get(ConfigMap, "one", namespace)
    assert read.data == {"colour": "red"}
    await client.delete(ConfigMap, "one", namespace, uid=read.metadata.uid)
    with pytest.raises(NotFound) as gone:
        await client.get(ConfigMap, "one", namespace)
    assert not gone.value.resource_missing


async def test_lists_come_in_pages_and_by_selector(client: Client, namespace: str) -> None:
    for number in range(7):
        labels = {"odd": "yes" if number % 2 else "no"}
        await client.create(ConfigMap, configmap(f"item-{number}", labels), namespace)
    pages = [page async for page in client.pages(ConfigMap, Selection(namespace), limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    odd = await client.list(ConfigMap, Selection(namespace, labels="odd=yes"))
    assert [item.name for item in odd] == ["item-1", "item-3", "item-5"]
    one = await client.list(ConfigMap, Selection(namespace, fields="metadata.name=item-4"))
    assert [item.name for item in one] == ["item-4"]


async def test_creating_what_exists_says_so(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, configmap("one"), namespace)
    with pytest.raises(AlreadyExists):
        await client.create(ConfigMap, configmap("one"), namespace)


async def test_a_guarded_patch_refuses_to_overwrite_a_newer_object(client: Client, namespace: str) -> None:
    seen = await client.create(ConfigMap, configmap("one", value="1"), namespace)
    await client.patch(ConfigMap, "one", {"data": {"value": "2"}}, namespace=namespace)
    with pytest.raises(Conflict) as refused:
        await client.patch(
            ConfigMap,
            "one",
            {"data": {"value": "3"}},
            namespace=namespace,
            resource_version=seen.metadata.resource_version,
        )
    assert refused.value.stale_write == StaleWrite(ConfigMap, seen.key, seen.metadata.resource_version)
    assert (await client.get(ConfigMap, "one", namespace)).data == {"value": "2"}


async def test_a_delete_spares_an_object_that_was_made_anew(client: Client, namespace: str) -> None:
    seen = await client.create(ConfigMap, configmap("one"), namespace)
    await client.delete(ConfigMap, "one", namespace)
    await client.create(ConfigMap, configmap("one"), namespace)
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "one", namespace, uid=seen.metadata.uid)


async def test_each_manager_owns_its_fields_and_gives_up_those_it_no_longer_names(
    client: Client, namespace: str
) -> None:
    async def apply(manager: str, **data: str) -> ConfigMap:
        return await client.apply(ConfigMap, "one", {"data": data}, manager=FieldManager(manager), namespace=namespace)

    await apply("left", a="1", b="2")
    await apply("right", c="3")
    assert (await apply("left", a="1")).data == {"a": "1", "c": "3"}


async def test_an_applier_writes_only_what_differs(client: Client, namespace: str, api_server: Cluster) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        hand = Applier(counted, "left")
        made = await hand.apply(ConfigMap, "one", Share({"a": "1"}), None, namespace=namespace)
        same = await hand.apply(ConfigMap, "one", Share({"a": "1"}), made, namespace=namespace)
        assert same is made
        assert len(proxy.writes) == 1
        await hand.apply(ConfigMap, "one", Share({"a": "2"}), made, namespace=namespace)
        with pytest.raises(Conflict):
            await hand.apply(ConfigMap, "one", Share({"a": "3"}), made, namespace=namespace, guarded=True)


async def test_status_is_written_through_its_subresource_alone(client: Client, namespace: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    await client.create(Pod, {**pod, "status": {"message": "from spec"}}, namespace)
    status = {"status": {"message": "from status"}}
    assert (await client.patch(Pod, "p", status, namespace=namespace)).status.message == ""
    written = await client.patch(Pod, "p", status, namespace=namespace, subresource="status")
    assert written.status.message == "from status"


async def test_a_finalizer_holds_a_deletion_and_lets_it_go(client: Client, namespace: str) -> None:
    made = await client.create(ConfigMap, configmap("one"), namespace)
    held = await add_finalizer(client, made, "test.example/hold")
    assert await add_finalizer(client, held, "test.example/hold") is held
    await client.delete(ConfigMap, "one", namespace)
    leaving = await client.get(ConfigMap, "one", namespace)
    assert leaving.deleting
    await remove_finalizer(client, leaving, "test.example/hold")
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "one", namespace)
    await remove_finalizer(client, leaving, "test.example/hold")


async def test_a_finalizer_never_overwrites_another_one(client: Client, namespace: str) -> None:
    made = await client.create(ConfigMap, configmap("one"), namespace)
    await add_finalizer(client, made, "test.example/first")
    with pytest.raises(Conflict):
        await add_finalizer(client, made, "test.example/second")


async def test_an_invalid_object_is_refused_with_the_field_at_fault(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await client.create(ConfigMap, configmap("Not A Name"), namespace)


async def test_a_kind_that_is_not_served_is_distinguished_from_a_missing_object(client: Client) -> None:
    with pytest.raises(NotFound) as unknown:
        await client.get(Missing, "one")
    assert unknown.value.resource_missing


async def test_throttled_requests_wait_and_succeed(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        proxy.plant(Fault(status=429, retry_after=0, reason="TooManyRequests", times=3))
        made = await counted.create(ConfigMap, configmap("one"), namespace)
        assert made.name == "one"
        assert len(proxy.requests) == 4


async def test_a_server_that_throttles_for_ever_is_given_up(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        proxy.plant(Fault(status=429, retry_after=0, reason="TooManyRequests", times=99))
        with pytest.raises(TooManyRequests):
            await counted.get(ConfigMap, "one", namespace)
        assert len(proxy.requests) < 10


async def test_a_server_in_trouble_is_not_asked_again_unless_it_says_so(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        proxy.plant(Fault(status=500, reason="InternalError"))
        with pytest.raises(ServerError, match="a planted fault"):
            await counted.get(ConfigMap, "one", namespace)
        assert len(proxy.requests) == 1


async def test_a_slow_answer_ends_in_time(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config, timeout=1.0) as hasty:
        proxy.plant(Fault(delay=60.0))
        with pytest.raises(Unreachable, match="did not answer in time"):
            await hasty.get(ConfigMap, "one", namespace)


async def test_a_write_whose_answer_is_lost_is_never_sent_twice(client: Client, namespace: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as cut_off:
        proxy.plant(Fault(lose_answer=True))
        with pytest.raises(Unreachable):
            await cut_off.create(ConfigMap, {"metadata": {"generateName": "one-"}}, namespace)
        assert len(proxy.writes) == 1

    async def one_made() -> bool:
        return len(await client.list(ConfigMap, Selection(namespace))) == 1

    await until_async(one_made)


async def test_a_server_that_is_not_there_is_named_with_what_to_check(api_server: Cluster, tmp_path: Path) -> None:
    text = api_server.kubeconfig.read_text().replace(api_server.server, "https://127.0.0.1:9")
    other = tmp_path / "kubeconfig"
    other.write_text(text)
    async with Client(load_config(other)) as unauthenticated:
        with pytest.raises(Unreachable, match=r"cannot connect to the API server at https://127\.0\.0\.1:9"):
            await unauthenticated.list(ConfigMap)
