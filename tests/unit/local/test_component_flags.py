"""Command lines of the components: what callers choose wins, and nothing listens beyond this machine."""

from pathlib import Path

import pytest

from gpu_control_plane.local.components import ClusterPlan, Component, Identities, Ports, Settings, first_address, flags
from gpu_control_plane.local.credentials import KeyPair

PAIR = KeyPair(Path("certificate"), Path("key"))
PORTS = Ports(etcd=1, etcd_peers=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6)


def plan(settings: Settings, gateway: str | None = None) -> ClusterPlan:
    identities = Identities(
        authority=PAIR,
        serving=PAIR,
        admin=PAIR,
        service_accounts=PAIR,
        front_proxy_authority=PAIR.certificate,
        front_proxy=PAIR,
        kubelet_client=PAIR,
    )
    return ClusterPlan(folder=Path("cluster"), settings=settings, ports=PORTS, identities=identities, gateway=gateway)


@pytest.mark.parametrize("component", list(Component))
def test_chosen_flags_come_last_and_so_win(component: Component) -> None:
    settings = Settings(flags={component: ("--chosen=yes",)})
    assert flags(component, plan(settings))[-1] == "--chosen=yes"


@pytest.mark.parametrize("component", list(Component))
def test_every_component_listens_on_loopback_at_its_own_port(component: Component) -> None:
    own = [flag for flag in flags(component, plan(Settings())) if "address" in flag or "listen" in flag]
    assert own
    assert all("127.0.0.1" in flag for flag in own)
    assert any(str(PORTS.of(component)) in flag for flag in flags(component, plan(Settings())))


def test_pods_are_accepted_where_no_controller_creates_service_accounts() -> None:
    alone = Settings(components=(Component.ETCD, Component.APISERVER))
    flag = "--disable-admission-plugins=ServiceAccount"
    assert flag in flags(Component.APISERVER, plan(alone))
    assert flag not in flags(Component.APISERVER, plan(Settings()))


def test_real_nodes_reach_the_api_server_and_it_reaches_them() -> None:
    with_nodes = flags(Component.APISERVER, plan(Settings(nodes=("a",)), gateway="198.18.0.1"))
    assert {"--bind-address=0.0.0.0", "--advertise-address=198.18.0.1"} <= set(with_nodes)
    assert "--kubelet-client-certificate=certificate" in with_nodes


def test_the_first_service_address_is_kubernetes_own() -> None:
    assert first_address("10.96.0.0/16") == "10.96.0.1"
