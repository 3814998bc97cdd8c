"""What belongs to an object of Ray follows what is wanted of it, on a real API server."""

from typing import Any

import msgspec

from gpu_control_plane.kube import Client
from gpu_control_plane.kube.objects import FieldManager, controlled_by
from gpu_control_plane.ray.child_writer import ChildWriter
from gpu_control_plane.ray.owned import OwnedService


async def test_what_a_service_was_created_with_goes_when_it_is_no_longer_wanted(client: Client, namespace: str) -> None:
    bare = {"metadata": {"name": "owner"}, "spec": {"ports": [{"port": 1}]}}
    owner = await client.create(OwnedService, bare, namespace)
    held_by = msgspec.to_builtins(controlled_by(OwnedService.resource, owner.name, owner.metadata.uid))

    def manifest(port: int, **annotations: str) -> dict[str, Any]:
        ports = [{"name": "serve", "port": port, "targetPort": port, "protocol": "TCP"}]
        metadata = {"name": "svc", "namespace": namespace, "annotations": annotations, "ownerReferences": [held_by]}
        spec = {"selector": {"a": "b"}, "ports": ports}
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}

    writer = ChildWriter(client)
    held, _ = await writer.ensure(OwnedService, owner, manifest(8000, ours="1"), None)
    await client.apply(
        OwnedService,
        "svc",
        {"metadata": {"annotations": {"theirs": "2"}}},
        manager=FieldManager("user"),
        namespace=namespace,
    )
    held, _ = await writer.ensure(OwnedService, owner, manifest(9000), held)
    assert [port["port"] for port in held.spec["ports"]] == [9000]
    assert held.metadata.annotations.keys() >= {"theirs"}
    assert "ours" not in held.metadata.annotations
    _, written = await writer.ensure(OwnedService, owner, manifest(9000), held)
    assert not written
