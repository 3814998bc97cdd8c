"""A tenant: somebody who may edit one namespace, and nothing else in the cluster."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import yaml

from gpu_control_plane.kube import Client, load_config
from integration.conftest import Namespace
from integration.rbac import RoleBinding


class Tenant(msgspec.Struct, frozen=True):
    namespace: str
    client: Client
    """Has the tenant's rights."""
    kubeconfig: Path


@asynccontextmanager
async def tenant(admin: Client, kubeconfig: Path, folder: Path) -> AsyncIterator[Tenant]:
    """A new namespace whose editor acts through a kubeconfig in `folder`."""
    made = await admin.create(Namespace, {"metadata": {"generateName": "tenant-"}})
    user = f"tenant-{secrets.token_hex(3)}"
    # What `edit` is put together from: without a controller-manager it is empty itself.
    for role in ("system:aggregate-to-edit", "system:aggregate-to-view"):
        binding = {
            "metadata": {"name": role.replace(":", "-")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        await admin.create(RoleBinding, binding, made.name)
    own = impersonating(user, kubeconfig, folder)
    async with Client(load_config(own)) as client:
        yield Tenant(made.name, client, own)


def impersonating(user: str, kubeconfig: Path, folder: Path) -> Path:
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"]["as"] = user
    made = folder / f"{user}.kubeconfig"
    made.write_text(yaml.safe_dump(config))
    return made
