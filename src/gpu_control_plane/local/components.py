"""The components of a cluster and the flags each is started with. Pure: a `ClusterPlan` in, command lines out."""

import enum
import ipaddress
from pathlib import Path

import msgspec

from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.ports import LOOPBACK

POD_CIDR = "10.244.0.0/16"
SIMULATED_NODE_ANNOTATION = "kwok.x-k8s.io/node"
SIMULATED_NODE_VALUE = "fake"
SERVICE_CIDR = "10.96.0.0/16"
"""Without real nodes nothing answers at a Service's address, and every cluster may have the same range."""
FRONT_PROXY = "front-proxy-client"


class Component(enum.StrEnum):
    """In the order in which they start; they stop in the opposite one."""

    ETCD = "etcd"
    APISERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KWOK = "kwok"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may choose about a cluster."""

    name: str = "gpu"
    components: tuple[Component, ...] = tuple(Component)
    port: int | None = None
    """The API server's port; a free one is chosen, and kept for the cluster's life, when none is given."""
    flags: dict[Component, tuple[str, ...]] = {}
    """Flags added after our own, so that they win."""
    nodes: tuple[str, ...] = ()
    """Names of real nodes, which need Linux, root and the programs of a node."""
    services: bool = False
    """Whether Services work on the real nodes, by address and by name: kube-proxy on each, and CoreDNS."""
    start_timeout: float = 60.0


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything listens, on the loopback interface."""

    etcd: int
    etcd_peers: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int

    def of(self, component: Component) -> int:
        """The port where a component answers."""
        port: int = getattr(self, FIELDS[component][0])
        return port


FIELDS: dict[Component, tuple[str, ...]] = {
    Component.ETCD: ("etcd", "etcd_peers"),
    Component.APISERVER: ("apiserver",),
    Component.CONTROLLER_MANAGER: ("controller_manager",),
    Component.SCHEDULER: ("scheduler",),
    Component.KWOK: ("kwok",),
}
"""The ports each component listens on; the first is where it answers."""


class Health(msgspec.Struct, frozen=True):
    """How to ask a component whether it is ready."""

    path: str
    secure: bool = True


HEALTH = {
    Component.ETCD: Health("/health"),
    Component.APISERVER: Health("/readyz"),
    Component.CONTROLLER_MANAGER: Health("/healthz"),
    Component.SCHEDULER: Health("/readyz"),
    Component.KWOK: Health("/healthz", secure=False),
}


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """The certificates by which the components authenticate to each other."""

    authority: KeyPair
    serving: KeyPair
    admin: KeyPair
    service_accounts: KeyPair
    front_proxy_authority: Path
    front_proxy: KeyPair
    """The client certificate of the API server towards extension API servers."""
    kubelet_client: KeyPair
    """The client certificate of the API server towards kubelets, for logs and exec."""


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything command lines are made from."""

    folder: Path
    settings: Settings
    ports: Ports
    identities: Identities
    gateway: str | None = None
    """The address at which real nodes reach this host; None without real nodes."""
    service_cidr: str = SERVICE_CIDR

    def kubeconfig(self, component: Component) -> Path:
        return self.folder / "pki" / f"{component}.kubeconfig"

    @property
    def stages(self) -> Path:
        return Path(__file__).parent / "stages.yaml"


def flags(component: Component, plan: ClusterPlan) -> list[str]:
    """A component's command line without the program."""
    ours = _FLAGS[component](plan)
    return [*ours, *plan.settings.flags.get(component, ())]


def first_address(cidr: str) -> str:
    """The address that Kubernetes gives to its own Service."""
    return str(next(ipaddress.ip_network(cidr).hosts()))


def _etcd(plan: ClusterPlan) -> list[str]:
    client = f"https://{LOOPBACK}:{plan.ports.etcd}"
    peer = f"https://{LOOPBACK}:{plan.ports.etcd_peers}"
    pair, authority = plan.identities.serving, plan.identities.authority.certificate
    tls = {"trusted-ca-file": authority, "cert-file": pair.certificate, "key-file": pair.key}
    return [
        f"--name={plan.settings.name}",
        f"--data-dir={plan.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={plan.settings.name}={peer}",
        *(f"--{prefix}{name}={path}" for prefix in ("", "peer-") for name, path in tls.items()),
        "--client-cert-auth",
        "--peer-client-cert-auth",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--logger=zap",
        "--log-level=warn",
    ]


def _apiserver(plan: ClusterPlan) -> list[str]:
    identities = plan.identities
    own = [
        f"--etcd-servers=https://{LOOPBACK}:{plan.ports.etcd}",
        f"--etcd-cafile={identities.authority.certificate}",
        f"--etcd-certfile={identities.serving.certificate}",
        f"--etcd-keyfile={identities.serving.key}",
        *_reached_at(plan),
        f"--secure-port={plan.ports.apiserver}",
        *_serving(plan),
        f"--client-ca-file={identities.authority.certificate}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={plan.service_cidr}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={identities.service_accounts.certificate}",
        f"--service-account-signing-key-file={identities.service_accounts.key}",
        f"--requestheader-client-ca-file={identities.front_proxy_authority}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={identities.front_proxy.certificate}",
        f"--proxy-client-key-file={identities.front_proxy.key}",
        "--shutdown-delay-duration=0s",
    ]
    if Component.CONTROLLER_MANAGER not in plan.settings.components:
        # No controller creates the default service account then, and pods would be refused without it.
        own.append("--disable-admission-plugins=ServiceAccount")
    return own


def _reached_at(plan: ClusterPlan) -> list[str]:
    """Real nodes connect from addresses of their own; without them, the API server listens on loopback only."""
    if plan.gateway is None:
        return [
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            # A loopback address may not be an endpoint of the kubernetes Service.
            "--endpoint-reconciler-type=none",
        ]
    identities = plan.identities
    return [
        "--bind-address=0.0.0.0",
        f"--advertise-address={plan.gateway}",
        f"--kubelet-client-certificate={identities.kubelet_client.certificate}",
        f"--kubelet-client-key={identities.kubelet_client.key}",
        f"--kubelet-certificate-authority={identities.authority.certificate}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _controller_manager(plan: ClusterPlan) -> list[str]:
    authority = plan.identities.authority
    return [
        *_client(Component.CONTROLLER_MANAGER, plan, plan.ports.controller_manager),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={plan.identities.service_accounts.key}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
    ]


def _scheduler(plan: ClusterPlan) -> list[str]:
    return _client(Component.SCHEDULER, plan, plan.ports.scheduler)


def _kwok(plan: ClusterPlan) -> list[str]:
    return [
        f"--kubeconfig={plan.kubeconfig(Component.KWOK)}",
        f"--config={plan.stages}",
        f"--manage-nodes-with-annotation-selector={SIMULATED_NODE_ANNOTATION}={SIMULATED_NODE_VALUE}",
        "--node-lease-duration-seconds=40",
        # A request for logs of a simulated node must be refused on this host, not be sent to the network.
        f"--node-ip={LOOPBACK}",
        f"--cidr={POD_CIDR}",
        f"--server-address={LOOPBACK}:{plan.ports.kwok}",
        "--v=WARN",
    ]


def _client(component: Component, plan: ClusterPlan, port: int) -> list[str]:
    config = plan.kubeconfig(component)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *_serving(plan),
        "--leader-elect=false",
    ]


def _serving(plan: ClusterPlan) -> list[str]:
    pair = plan.identities.serving
    return [f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"]


_FLAGS = {
    Component.ETCD: _etcd,
    Component.APISERVER: _apiserver,
    Component.CONTROLLER_MANAGER: _controller_manager,
    Component.SCHEDULER: _scheduler,
    Component.KWOK: _kwok,
}
