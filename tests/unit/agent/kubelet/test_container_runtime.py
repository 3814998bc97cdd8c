"""What a container runtime says of its own settings, and what stays unknown."""

import json
from pathlib import Path

import grpc
import pytest

from gpu_control_plane.agent.kubelet.container_runtime import UNKNOWN, ContainerRuntime, RuntimeSettings, read_settings
from gpu_control_plane.agent.kubelet.protocol import cri_pb2 as wire

CONFIG = {"enableCDI": False, "cdiSpecDirs": ["/etc/cdi"], "containerd": {"runtimes": {"runc": {}, "nvidia": {}}}}


@pytest.mark.parametrize(
    ("config", "handlers", "expected"),
    [
        (
            json.dumps(CONFIG),
            (),
            RuntimeSettings(cdi_enabled=False, spec_dirs=("/etc/cdi",), handlers=frozenset({"runc", "nvidia"})),
        ),
        (None, ("", "crun"), RuntimeSettings(handlers=frozenset({"crun"}))),
        ('{"cdiSpecDirs": []}', (), RuntimeSettings(cdi_enabled=False, spec_dirs=())),
        ('{"cdiSpecDirs": null}', (), UNKNOWN),
        ("{", (), UNKNOWN),
        ('{"sandboxImage": "pause"}', (), UNKNOWN),
    ],
)
def test_the_answers_of_runtimes(config: str | None, handlers: tuple[str, ...], expected: RuntimeSettings) -> None:
    assert read_settings(config, handlers) == expected


async def test_the_runtime_is_asked_at_the_first_usual_place_that_is_a_socket(folder: Path) -> None:
    place = folder / "run/crio/crio.sock"
    place.parent.mkdir(parents=True)
    runtime = ContainerRuntime(folder)
    assert (await runtime.settings(), runtime.identity()) == (UNKNOWN, None)

    async def status(request: wire.StatusRequest, _context: object) -> wire.StatusResponse:
        assert request.verbose
        return wire.StatusResponse(info={"config": json.dumps(CONFIG)})

    call = grpc.unary_unary_rpc_method_handler(
        status, wire.StatusRequest.FromString, wire.StatusResponse.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", {"Status": call}),)
    )
    server.add_insecure_port(f"unix://{place}")
    await server.start()
    assert (await runtime.settings()).cdi_enabled is False
    assert runtime.identity() is not None
    await server.stop(0)


async def test_nothing_is_known_of_a_runtime_that_does_not_answer(folder: Path) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix://{folder / 'mute.sock'}")
    await server.start()
    assert await ContainerRuntime(folder, folder / "mute.sock").settings() == UNKNOWN
    await server.stop(0)
