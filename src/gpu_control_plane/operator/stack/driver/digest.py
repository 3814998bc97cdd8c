"""A digest over all that a loaded driver depends on. Pure.

A new pod with the digest of the old one does not reload the driver, so no pod with a card has to leave the node for it.
The digest covers images, commands, arguments, variables, volumes and mounts of the containers that load kernel modules,
and the parameters they read. It leaves out what does not affect a loaded driver: labels, tolerations, priority, probes,
resources, the driver manager, and the proxy through which packages were downloaded.
"""

import hashlib
from typing import Final

import msgspec

from gpu_control_plane.api.pod import DRIVER_CONFIG_DIGEST
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.driver.mounts import PARAMETERS_DIGEST
from gpu_control_plane.operator.stack.driver.openshift import PROXY_VARIABLES, TOOLKIT
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.transforms import MANAGER

_PROBE: Final = "driver-startup-probe"


def add_driver_digest(daemonset: DaemonSetManifest) -> None:
    """Put the digest into the environment of the containers that compare it. This has to be the last change to a
    driver's DaemonSet."""
    digest = digest_of(daemonset)
    for name in (MANAGER, daemonset.main.name, TOOLKIT):
        if daemonset.has(name):
            daemonset.container(name).set_env(DRIVER_CONFIG_DIGEST, digest)


def digest_of(daemonset: DaemonSetManifest) -> str:
    containers = [_digested(held) for held in daemonset.pod["containers"]]
    mounted = {entry["name"] for held in containers for entry in held["mounts"]}
    volumes = [volume for volume in daemonset.pod.get("volumes", ()) if volume["name"] in mounted]
    whole = {
        "containers": containers,
        "volumes": sorted(volumes, key=lambda volume: str(volume["name"])),
        "parameters": daemonset.template["metadata"].get("annotations", {}).get(PARAMETERS_DIGEST, ""),
    }
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()[:16]


def _digested(container: Manifest) -> Manifest:
    plain = {item["name"]: item["value"] for item in container.get("env", ()) if "value" in item}
    mounts = [entry for entry in container.get("volumeMounts", ()) if entry["name"] != _PROBE]
    return {
        "name": container["name"],
        "image": container["image"],
        "command": container.get("command", []),
        "args": container.get("args", []),
        "env": {
            name: value
            for name, value in plain.items()
            if name != DRIVER_CONFIG_DIGEST and name.upper() not in PROXY_VARIABLES
        },
        "from": container.get("envFrom", []),
        "mounts": sorted(mounts, key=lambda entry: str(entry["mountPath"])),
    }
