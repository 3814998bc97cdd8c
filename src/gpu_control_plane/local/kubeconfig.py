"""Kubeconfigs with everything inside, so that a copy works wherever the server's address is reachable."""

import base64
import json
from pathlib import Path

from gpu_control_plane.local.credentials import KeyPair, write_private


def write_kubeconfig(path: Path, *, name: str, server: str, authority: Path, client: KeyPair) -> None:
    name = json.dumps(name)  # without quotes, YAML takes `n` and `1` for something else
    text = f"""\
apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {_inline(authority)}
users:
- name: {name}
  user:
    client-certificate-data: {_inline(client.certificate)}
    client-key-data: {_inline(client.key)}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
"""
    write_private(path, text.encode())


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
