"""Tokens by which callers of Ray show who they are."""

import base64
from typing import Final

from gpu_control_plane.api.ray.cluster import AuthMode
from gpu_control_plane.api.ray.names import Label
from gpu_control_plane.ray.cluster.manifests.containers import Part, add_mount, add_volume, default_env, has_mount
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.features import asks_for_token
from gpu_control_plane.ray.names import AUTH_TOKEN_KEY, token_secret_name

_VOLUME: Final = "ray-token"
_PATH: Final = "/var/run/secrets/ray.io/serviceaccount"


def put_token(container: Part, context: ClusterContext) -> None:
    """Let a container show the cluster's token, if there is one."""
    options = context.cluster.spec.auth_options
    if options is None or not asks_for_token(context.cluster.spec):
        return
    default_env(container, "RAY_AUTH_MODE", AuthMode.TOKEN.value)
    if options.enable_k8s_token_auth:
        default_env(container, "RAY_ENABLE_K8S_TOKEN_AUTH", "true")
        if not has_mount(container, name=_VOLUME):
            add_mount(container, _VOLUME, _PATH, readOnly=True)
        return
    key = {"name": token_secret_name(context.cluster.name, options), "key": AUTH_TOKEN_KEY}
    default_env(container, "RAY_AUTH_TOKEN", source={"secretKeyRef": key})


def add_token_volume(spec: Part, context: ClusterContext) -> None:
    """Give a pod the token of its service account, where Ray has the API server review it."""
    options = context.cluster.spec.auth_options
    if options is not None and asks_for_token(context.cluster.spec) and options.enable_k8s_token_auth:
        add_volume(spec, _VOLUME, {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})


def auth_secret(context: ClusterContext, token: bytes) -> Manifest | None:
    """The Secret with the token of the cluster, from 32 random bytes; None where none is made.

    It is made once: a token that changes would shut running pods out.
    """
    options = context.cluster.spec.auth_options
    if options is None or options.mode is AuthMode.DISABLED or options.secret_name or options.enable_k8s_token_auth:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": token_secret_name(context.cluster.name, options),
            "namespace": context.namespace,
            "labels": {Label.CLUSTER.value: context.cluster.name},
            "ownerReferences": context.owner_references(),
        },
        "stringData": {AUTH_TOKEN_KEY: base64.b64encode(token).decode()},
    }
