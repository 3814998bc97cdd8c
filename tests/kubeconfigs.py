"""Kubeconfigs as tests need them: valid by default, each part replaceable."""

from collections.abc import Mapping
from pathlib import Path

import yaml

SERVER = "https://kubernetes.example:6443"


def kubeconfig(
    *,
    cluster: Mapping[str, object] | None = None,
    user: Mapping[str, object] | None = None,
    namespace: str | None = None,
) -> dict[str, object]:
    """One context `here` of cluster `there` and user `me`."""
    context = {"cluster": "there", "user": "me"} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "there", "cluster": cluster if cluster is not None else {"server": SERVER}}],
        "users": [{"name": "me", "user": user if user is not None else {"token": "secret"}}],
        "contexts": [{"name": "here", "context": context}],
    }


def written(folder: Path, document: object, name: str = "config") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path
