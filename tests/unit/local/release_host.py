"""A file server with the layout of the official release hosts, and small programs in place of the large ones."""

import contextlib
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gpu_control_plane.local.platforms import Platform
from gpu_control_plane.local.versions import CONTAINERD, COREDNS, ETCD, KUBERNETES, KWOK


class ReleaseHost:
    """What it serves is a dictionary from path to content; tests change it to make it wrong."""

    def __init__(self, address: str, platform: Platform) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.announced: dict[str, int | None] = {}
        """Content-Length values to send instead of the true ones; None sends none."""
        self.requests: list[str] = []
        for program in KUBERNETES.programs:
            self._publish_kubernetes(program, platform)
        self._publish_etcd(platform)
        self._publish_kwok(platform)
        self._publish_containerd(platform)
        self._publish_coredns(platform)

    def environ(self, cache: Path) -> dict[str, str]:
        """An environment in which everything comes from here."""
        return {
            "PATH": "",
            "GPU_CONTROL_PLANE_CACHE": str(cache),
            "GPU_CONTROL_PLANE_KUBERNETES_URL": self.address,
            "GPU_CONTROL_PLANE_GITHUB_URL": self.address,
            "GPU_CONTROL_PLANE_GITHUB_API_URL": f"{self.address}/api",
        }

    def _publish_kubernetes(self, program: str, platform: Platform) -> None:
        path = f"/{KUBERNETES.version}/bin/{platform.os}/{platform.arch}/{program}"
        self.files[path] = content_of(program)
        self.files[f"{path}.sha256"] = digest(content_of(program)).encode()

    def _publish_etcd(self, platform: Platform) -> None:
        folder = f"/etcd-io/etcd/releases/download/{ETCD.version}"
        stem = f"etcd-{ETCD.version}-{platform.os}-{platform.arch}"
        archive = _tar({f"{stem}/etcd": content_of("etcd"), f"{stem}/etcdctl": b"not this one"})
        self.files[f"{folder}/{stem}.tar.gz"] = archive
        sums = f"{'0' * 64}  etcd-{ETCD.version}-plan9-amd64.tar.gz\n{digest(archive)}  {stem}.tar.gz\n"
        self.files[f"{folder}/SHA256SUMS"] = sums.encode()

    def _publish_kwok(self, platform: Platform) -> None:
        name = f"kwok-{platform.os}-{platform.arch}"
        self.files[f"/kubernetes-sigs/kwok/releases/download/{KWOK.version}/{name}"] = content_of("kwok")
        assets = [
            {"name": "kwok.yaml", "digest": None},
            {"name": name, "digest": f"sha256:{digest(content_of('kwok'))}"},
        ]
        release = json.dumps({"tag_name": KWOK.version, "assets": assets})
        self.files[f"/api/repos/kubernetes-sigs/kwok/releases/tags/{KWOK.version}"] = release.encode()

    def _publish_containerd(self, platform: Platform) -> None:
        folder = f"/containerd/containerd/releases/download/{CONTAINERD.version}"
        name = f"containerd-{CONTAINERD.version.removeprefix('v')}-{platform.os}-{platform.arch}.tar.gz"
        archive = _tar(
            {f"bin/{program}": content_of(program) for program in (*CONTAINERD.programs, "containerd-stress")}
        )
        self.files[f"{folder}/{name}"] = archive
        self.files[f"{folder}/{name}.sha256sum"] = f"{digest(archive)}  {name}\n".encode()

    def _publish_coredns(self, platform: Platform) -> None:
        folder = f"/coredns/coredns/releases/download/{COREDNS.version}"
        name = f"coredns_{COREDNS.version.removeprefix('v')}_{platform.os}_{platform.arch}.tgz"
        archive = _tar({"coredns": content_of("coredns")})
        self.files[f"{folder}/{name}"] = archive
        self.files[f"{folder}/{name}.sha256"] = f"{digest(archive)}  {name}\n".encode()


@contextmanager
def release_host(platform: Platform) -> Iterator[ReleaseHost]:
    """Serve releases on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.requests.append(self.path)
            body = host.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            if (size := host.announced.get(self.path, len(body))) is not None:
                self.send_header("Content-Length", str(size))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client may have had enough
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        host = ReleaseHost(f"http://127.0.0.1:{server.server_port}", platform)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            thread.join()


def content_of(program: str) -> bytes:
    return f"#!/bin/sh\necho {program}\n".encode()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
