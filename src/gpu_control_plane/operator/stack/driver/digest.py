"""A digest over all that a loaded driver depends on. Pure.

A new pod with the digest of the old one lets the loaded driver be: no work has to leave the node for it. So it covers
images, commands, arguments, variables, volumes and mounts of the containers that load something, and the parameters
they read. It leaves out what a loaded driver does not feel: labels, tolerations, priority, probes, resources, the
manager that runs before it, the proxy through which packages came.
"""

import hashlib
from typing import Final

import msgspec

from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver.mounts import PARAMETERS_DIGEST
from gpu_control_plane.operator.stack.driver.openshift import PROXY_VARIABLES, TOOLKIT
from gpu_control_plane.operator.stack.driver_manager import MANAGER
from gpu_control_plane.operator.stack.manifest import Manifest

DIGEST: Final = "DRIVER_CONFIG_DIGEST"

_PROBE: Final = "driver-startup-probe"


def seal(daemonset: DaemonSet) -> None:
    """Tell the containers concerned what they are made of. It has to be the last thing done to a driver."""
    digest = digest_of(daemonset)
    for name in (MANAGER, daemonset.main.name, TOOLKIT):
        if daemonset.has(name):
            daemonset.container(name).set_env(DIGEST, digest)


def digest_of(daemonset: DaemonSet) -> str:
    containers = [_essence(held) for held in daemonset.pod["containers"]]
    mounted = {entry["name"] for held in containers for entry in held["mounts"]}
    volumes = [volume for volume in daemonset.pod.get("volumes", ()) if volume["name"] in mounted]
    whole = {
        "containers": containers,
        "volumes": sorted(volumes, key=lambda volume: str(volume["name"])),
        "parameters": daemonset.template["metadata"].get("annotations", {}).get(PARAMETERS_DIGEST, ""),
    }
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()[:16]


def _essence(container: Manifest) -> Manifest:
    plain = {item["name"]: item["value"] for item in container.get("env", ()) if "value" in item}
    mounts = [entry for entry in container.get("volumeMounts", ()) if entry["name"] != _PROBE]
    return {
        "name": container["name"],
        "image": container["image"],
        "command": container.get("command", []),
        "args": container.get("args", []),
        "env": {name: value for name, value in plain.items() if name != DIGEST and name.upper() not in PROXY_VARIABLES},
        "from": container.get("envFrom", []),
        "mounts": sorted(mounts, key=lambda entry: str(entry["mountPath"])),
    }
