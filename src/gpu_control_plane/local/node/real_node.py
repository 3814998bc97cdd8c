"""A node with a real kubelet and containerd that runs real pods, and with kube-proxy where Services are asked for.

Its programs run in the namespaces of a `machine`: paths that Kubernetes has fixed, such as `/var/lib/kubelet`, are
private there, and so are processes, interfaces and addresses. Several nodes run on one host without seeing each other,
and from outside each is a folder.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpu_control_plane.local import images, processes
from gpu_control_plane.local.components import Health
from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.kubeconfig import write_kubeconfig
from gpu_control_plane.local.node import cgroups, configuration, machine, nsenter, readiness, shortcut
from gpu_control_plane.local.node.configuration import KUBELET_HEALTH_PORT, PROXY_HEALTH_PORT, Layout
from gpu_control_plane.local.node.namespaces import start_and_wait
from gpu_control_plane.local.node.network import Attachment
from gpu_control_plane.local.node.program import NodeProgram, ProgramInfo
from gpu_control_plane.local.node.requirements import SystemPrograms
from gpu_control_plane.local.programs import Binaries
from gpu_control_plane.local.sync_client import SyncClient

_IMPORT_TIMEOUT = 60.0
_HEALTH = "/healthz"


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs so that its pods reach Services by address and by name."""

    dns: str
    proxy: KeyPair
    """The client certificate with which kube-proxy watches Services."""


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster gives to a node."""

    server: str
    """The API server's address as seen from the node."""
    authority: Path
    identity: KeyPair
    serving: KeyPair
    attachment: Attachment
    router: int
    """The PID of the router that the node is attached to."""
    services: Services | None
    client: SyncClient
    port: int
    """The API server's port as seen from this process."""
    timeout: float


class RealNode:
    """Owned by a cluster, which starts and stops it; tests may also break it."""

    def __init__(
        self, name: str, folder: Path, context: NodeContext, binaries: Binaries, system: SystemPrograms
    ) -> None:
        self.name = name
        self.folder = folder
        self.address = context.attachment.address
        self.interface = context.attachment.interface
        self._layout = Layout(folder)
        self._sockets = Layout(shortcut.shortcut(self.interface))
        """The same folder by a short path, while the node runs; the name of a socket may have 107 characters."""
        self._context = context
        self._binaries = binaries
        self._system = system
        self._cgroup = _cgroup(self.interface)
        self.machine = self._program("machine", self._start_machine, lambda: True)
        self.containerd = self._program("containerd", self._launch_containerd, self._containerd_answers)
        self.kubelet = self._program("kubelet", self._launch_kubelet, self._is_ready, KUBELET_HEALTH_PORT)
        self.kube_proxy = self._program("kube-proxy", self._launch_proxy, self._kube_proxy_answers, PROXY_HEALTH_PORT)

    @property
    def programs(self) -> list[NodeProgram]:
        """All that runs for the node, in the order of starting."""
        own = [self.machine, self.containerd, self.kubelet]
        return [*own, self.kube_proxy] if self._context.services else own

    @property
    def device_plugins(self) -> Path:
        """The folder of device plugin sockets, `/var/lib/kubelet/device-plugins` on the node."""
        return self._sockets.kubelet / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """The kubelet's pod-resources socket."""
        return self._sockets.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def cdi(self) -> Path:
        """The folder of CDI specifications, `/run/cdi` on the node: gone after a reboot, as on every machine."""
        return self._layout.run / "cdi"

    @property
    def containerd_config(self) -> Path:
        return self._layout.containerd / "config.toml"

    @property
    def containerd_drop_ins(self) -> Path:
        """Every `*.toml` here is part of containerd's configuration when containerd starts."""
        return self._layout.containerd / "conf.d"

    @property
    def containerd_socket(self) -> Path:
        return self._sockets.run / "containerd" / "containerd.sock"

    @property
    def logs(self) -> Path:
        """The programs' own logs, and those of the pods in `pods`."""
        return self._layout.logs

    @property
    def boot_id(self) -> str:
        """Which start of the machine this is; another one after each reboot."""
        return (self._layout.kernel / Path(configuration.BOOT_ID).name).read_text().strip()

    def start(self) -> None:
        """Start the machine, and return when the node is ready for pods."""
        try:
            self.machine.start()
            self.containerd.start()
            self._import_own_images()
            for program in self.programs:
                program.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the machine: its processes, mounts and addresses are gone; the disk is kept."""
        self.machine.stop()
        for program in self.programs:
            program.stop(signal.SIGKILL)
        clear_leftovers(self.interface)

    def reboot(self) -> None:
        """Lose power and come back: containers and everything in memory are gone, the disk is as it was."""
        self.stop()
        self.start()

    def import_image(self, archive: Path) -> None:
        """Import the images of an OCI or Docker archive into containerd, as if they had been pulled."""
        ctr = [str(self._binaries.path("ctr")), "--address", str(self.containerd_socket), "--namespace", "k8s.io"]
        ran = subprocess.run(
            [*ctr, "images", "import", str(archive)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_IMPORT_TIMEOUT,
        )
        if ran.returncode != 0:
            raise LocalError(f"{self.name} could not import {archive}: {ran.stderr.strip()}")

    def command(self, *arguments: str) -> list[str]:
        """A command line that runs a program inside the machine, such as a shell."""
        if self.machine.pid is None:
            raise LocalError(f"The node {self.name} does not run. Call start() first.")
        return [sys.executable, "-P", "-m", nsenter.__name__, str(self.machine.pid), *arguments]

    def _program(
        self,
        program: str,
        start: Callable[[Path], subprocess.Popen[bytes]],
        ready: Callable[[], bool],
        port: int | None = None,
    ) -> NodeProgram:
        known = self._binaries.programs.get(program)
        info = ProgramInfo(
            node=self.name,
            program=program,
            log=self.logs / f"{program}.log",
            version=known.version if known else "",
            address=f"{self.address}:{port}" if port else "",
            health=Health(_HEALTH, secure=False) if port else None,
        )
        return NodeProgram(info, start, ready, self._context.timeout)

    def _prepare(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._layout.run)
        for folder in self._layout.folders:
            folder.mkdir(parents=True, exist_ok=True)
        clear_leftovers(self.interface)
        cgroups.make(self._cgroup)
        shortcut.make(self.interface, self.folder)
        self._write_configuration()

    def _write_configuration(self) -> None:
        layout, context = self._layout, self._context
        config = configuration.containerd_config(layout, self._system.plugins, self._system.runc)
        self.containerd_config.write_text(config)
        (layout.cni / "net.d" / "10-pods.conflist").write_text(configuration.pod_network(layout, context.attachment))
        names = layout.kubelet / "resolv.conf"
        names.write_text("")
        (layout.kubelet / "config.json").write_text(
            configuration.kubelet_config(
                layout,
                context.attachment,
                cgroup=self._cgroup,
                authority=context.authority,
                serving=context.serving,
                names=names,
                dns=context.services.dns if context.services else None,
            )
        )
        self._write_kubeconfig(layout.kubelet / "kubeconfig", context.identity)
        if context.services:
            config = configuration.proxy_config(layout, context.attachment, name=self.name)
            (layout.kube_proxy / "config.json").write_text(config)
            self._write_kubeconfig(layout.kube_proxy / "kubeconfig", context.services.proxy)
        for setting, value in {**configuration.KERNEL, configuration.BOOT_ID: str(uuid.uuid4())}.items():
            (layout.kernel / Path(setting).name).write_text(f"{value}\n")

    def _write_kubeconfig(self, path: Path, client: KeyPair) -> None:
        context = self._context
        write_kubeconfig(path, name=self.name, server=context.server, authority=context.authority, client=client)

    def _start_machine(self, _log: Path) -> subprocess.Popen[bytes]:
        self._prepare()
        spec = machine.MachineSpec(
            name=self.name,
            folders={path: str(source) for path, source in self._layout.redirected.items()},
            kernel={
                setting: str(self._layout.kernel / Path(setting).name)
                for setting in (*configuration.KERNEL, configuration.BOOT_ID)
            },
            attachment=self._context.attachment,
            router=self._context.router,
        )
        return start_and_wait(machine.__name__, spec, f"The machine of {self.name}", cwd=self.folder)

    def _launch_containerd(self, log: Path) -> subprocess.Popen[bytes]:
        return self._launch(log, "containerd", f"--config={self.containerd_config}")

    def _launch_kubelet(self, log: Path) -> subprocess.Popen[bytes]:
        return self._launch(
            log,
            "kubelet",
            f"--config={self._layout.kubelet / 'config.json'}",
            f"--kubeconfig={self._layout.kubelet / 'kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )

    def _launch_proxy(self, log: Path) -> subprocess.Popen[bytes]:
        return self._launch(log, "kube-proxy", f"--config={self._layout.kube_proxy / 'config.json'}")

    def _launch(self, log: Path, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        helpers = [self._binaries.path("containerd-shim-runc-v2"), *([self._system.nft] if self._system.nft else [])]
        folders = [*(str(helper.parent) for helper in helpers), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        environ = {"PATH": os.pathsep.join(folders), "HOME": "/"}
        command = self.command(str(self._binaries.path(program)), *arguments)
        with log.open("ab") as output:
            return processes.spawn(command, output=output, environ=environ, cwd=self.folder)

    def _import_own_images(self) -> None:
        archive = self.folder / "images.tar"
        own = images.busybox_images(self._system.busybox)
        if self._context.services:
            own.append(images.coredns_image(self._binaries.path("coredns")))
        images.write_archive(own, archive)
        self.import_image(archive)
        archive.unlink()

    def _containerd_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(str(self.containerd_socket)) == 0

    def _kube_proxy_answers(self) -> bool:
        return self._context.client.healthy(PROXY_HEALTH_PORT, _HEALTH, secure=False, host=self.address)

    def _is_ready(self) -> bool:
        return readiness.is_ready(self._context.client, self._context.port, self.name, self.address, self.boot_id)


def clear_leftovers(interface: str) -> None:
    """Remove what the kernel leaves of the node with this interface: its control groups and a symbolic link."""
    cgroups.remove(_cgroup(interface))
    shortcut.remove(interface)


def _cgroup(interface: str) -> str:
    return f"gpu-control-plane-{interface}"
