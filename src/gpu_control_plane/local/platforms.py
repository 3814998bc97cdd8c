"""The platform of this machine, as Kubernetes releases name it."""

import platform as machine

import msgspec

from gpu_control_plane.local.errors import UnsupportedPlatform

_SYSTEMS = {"Linux": "linux", "Darwin": "darwin"}
_PROCESSORS = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class Platform(msgspec.Struct, frozen=True):
    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}-{self.arch}"


def this_platform() -> Platform:
    """The platform of this machine, or an error that says which ones work."""
    system, processor = machine.system(), machine.machine()
    try:
        return Platform(_SYSTEMS[system], _PROCESSORS[processor.lower()])
    except KeyError:
        raise UnsupportedPlatform(
            f"The local cluster runs on Linux and macOS, on amd64 and arm64 processors; this is {system} on"
            f" {processor}. Use a machine or a container of such a kind."
        ) from None
