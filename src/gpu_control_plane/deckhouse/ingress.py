"""Ingress controllers, and the addresses that MetalLB announces for them."""

from collections.abc import Iterator

from gpu_control_plane.deckhouse.description import ClusterDescription, Ingress
from gpu_control_plane.deckhouse.kinds import Document, Metadata
from gpu_control_plane.deckhouse.kinds.services import (
    L2,
    IngressNginxController,
    IngressNginxControllerSpec,
    LoadBalancer,
    MetalLoadBalancerClass,
    MetalLoadBalancerClassSpec,
)
from gpu_control_plane.deckhouse.nodes import GROUP_LABEL, tolerations


def ingress(cluster: ClusterDescription) -> Iterator[Document]:
    for each in cluster.ingress:
        yield from _controller(cluster, each)


def _controller(cluster: ClusterDescription, each: Ingress) -> Iterator[Document]:
    selector = {GROUP_LABEL: each.node_group} if each.node_group else {}
    tolerated = tolerations(cluster, each.node_group)
    yield MetalLoadBalancerClass(
        metadata=Metadata(name=f"ingress-{each.name}"),
        spec=MetalLoadBalancerClassSpec(
            type="L2",
            address_pool=tuple(addresses.span for addresses in each.addresses),
            l2=L2(interfaces=each.interfaces) if each.interfaces else None,
            node_selector=selector,
            tolerations=tolerated,
        ),
    )
    yield IngressNginxController(
        metadata=Metadata(name=each.name),
        spec=IngressNginxControllerSpec(
            ingress_class=each.ingress_class,
            inlet="LoadBalancer",
            load_balancer=LoadBalancer(
                load_balancer_class=f"ingress-{each.name}", source_ranges=tuple(map(str, each.source_ranges))
            ),
            node_selector=selector,
            tolerations=tolerated,
        ),
    )
