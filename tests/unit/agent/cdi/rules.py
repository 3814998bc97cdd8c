"""What a container runtime demands of CDI files, and how it looks devices up in them, written from the CDI rules.

For every test that wants to know whether a runtime would accept what we wrote; nothing in here is shared with the code
under test.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

type Document = Mapping[str, Any]

_TOP: Final = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_DEVICE: Final = {"name", "annotations", "containerEdits"}
_EDITS: Final = {"env", "deviceNodes", "hooks", "mounts", "netDevices", "intelRdt", "additionalGids"}
_NODE: Final = {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
_MOUNT: Final = {"hostPath", "containerPath", "type", "options"}
_HOOK: Final = {"hookName", "path", "args", "env", "timeout"}
_HOOKS: Final = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
_VERSIONS: Final = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_DEVICE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_KIND: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")


def violations(document: Document) -> list[str]:
    """What a runtime would refuse the file for, and a version that is higher than it need be."""
    found = _unknown("file", document, _TOP)
    if not _KIND.fullmatch(str(document.get("kind", ""))):
        found.append(f"kind {document.get('kind')!r}")
    devices: Sequence[Document] = document.get("devices", ())
    names = [str(device.get("name", "")) for device in devices]
    if not devices:
        found.append("no devices")
    if len(set(names)) < len(names):
        found.append("a device twice")
    for name, device in zip(names, devices, strict=True):
        found += _unknown(name, device, _DEVICE)
        if not _DEVICE_NAME.fullmatch(name):
            found.append(f"device name {name!r}")
        if not any(device.get("containerEdits", {}).values()):
            found.append(f"{name} has no edits")
    for edits in _all_edits(document):
        found += _edits(edits)
    if document.get("cdiVersion") != _least_version(document):
        found.append(f"version {document.get('cdiVersion')} where {_least_version(document)} is right")
    return found


def resolvable(folders: Iterable[Path]) -> dict[str, Document]:
    """The devices a runtime can find, by qualified name: later folders win, and a name twice in one folder is lost."""
    found: dict[str, Document] = {}
    for folder in folders:
        here: dict[str, Document] = {}
        twice: set[str] = set()
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if file.suffix not in (".json", ".yaml"):
                continue
            document = json.loads(file.read_text()) if file.suffix == ".json" else yaml.safe_load(file.read_text())
            for device in document["devices"]:
                name = f"{document['kind']}={device['name']}"
                twice |= {name} & here.keys()
                here[name] = device
        found |= here
        for name in twice:
            del found[name]
    return found


def _edits(edits: Document) -> list[str]:
    found = _unknown("edits", edits, _EDITS)
    found += [f"environment {entry!r}" for entry in edits.get("env", ()) if entry.find("=") < 1]
    for node in edits.get("deviceNodes", ()):
        found += _unknown("device node", node, _NODE)
        if not str(node.get("path", "")).startswith("/"):
            found.append(f"device node at {node.get('path')!r}")
        if node.get("type", "c") not in ("b", "c", "u", "p"):
            found.append(f"device node of type {node['type']!r}")
        if set(node.get("permissions", "")) - set("rwm"):
            found.append(f"permissions {node['permissions']!r}")
    for mount in edits.get("mounts", ()):
        found += _unknown("mount", mount, _MOUNT)
        if not all(str(mount.get(path, "")).startswith("/") for path in ("hostPath", "containerPath")):
            found.append(f"mount {mount}")
    for hook in edits.get("hooks", ()):
        found += _unknown("hook", hook, _HOOK)
        if hook.get("hookName") not in _HOOKS or not str(hook.get("path", "")).startswith("/"):
            found.append(f"hook {hook}")
    return found


def _least_version(document: Document) -> str:
    edits = _all_edits(document)
    nodes = [node for edit in edits for node in edit.get("deviceNodes", ())]
    mounts = [mount for edit in edits for mount in edit.get("mounts", ())]
    devices = document.get("devices", ())
    needs = {
        "1.1.0": any(edit.get("netDevices") for edit in edits),
        "0.7.0": any(edit.get("additionalGids") or edit.get("intelRdt") for edit in edits),
        "0.6.0": any(part.get("annotations") for part in (document, *devices)),
        "0.5.0": any(node.get("hostPath") for node in nodes) or any(device["name"][0].isdigit() for device in devices),
        "0.4.0": any(mount.get("type") for mount in mounts),
    }
    return next((version for version in reversed(_VERSIONS) if needs.get(version)), _VERSIONS[0])


def _all_edits(document: Document) -> list[Document]:
    own = [device.get("containerEdits", {}) for device in document.get("devices", ())]
    return [document.get("containerEdits", {}), *own]


def _unknown(where: str, part: Document, fields: set[str]) -> list[str]:
    return [f"unknown field {name} in {where}" for name in sorted(part.keys() - fields)]
