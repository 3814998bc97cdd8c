"""What the page has people do after `make demo` works beside the pools that the demo leaves."""

import re
from datetime import timedelta

import msgspec
import yaml
from examples.demo import _POOLS
from msgspec.structs import replace

from gpu_control_plane.agent.simulated.models import PROFILES
from gpu_control_plane.api.examples import device as example_device
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.inventory.cards import device_labels
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.desired_pool import desired_pools
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.snapshot import Snapshot
from unit.docs.test_links import ROOT
from unit.pools.model import NOW

PAGE = (ROOT / "docs/install-laptop.md").read_text()
_PROFILE = re.compile(r"kubectl gpu simulate nodes .*--profile (\S+)")
_POOL = re.compile(r"<<YAML\n(.*?)^YAML$", re.MULTILINE | re.DOTALL)


def pools_of_the_page() -> dict[str, GPUPool]:
    """The demo's pools, and the page's, which is the youngest."""
    found = _POOL.search(PAGE)
    assert found is not None
    written = yaml.safe_load(found[1])
    specs = {**_POOLS, written["metadata"]["name"]: written["spec"]}
    return {
        name: GPUPool(
            metadata=ObjectMeta(name=name, creation_timestamp=NOW + timedelta(seconds=age)),
            spec=msgspec.convert(spec, PoolSpec),
        )
        for age, (name, spec) in enumerate(specs.items())
    }


def card_of_the_page(approved: str | None = None) -> GPUDevice:
    """A card of the machine that the page adds."""
    found = _PROFILE.search(PAGE)
    assert found is not None
    made = example_device(pool=None)
    assert made.status.hardware is not None
    hardware = replace(made.status.hardware, product=PROFILES[found[1]].product)
    annotations = {Annotation.ASSIGNMENT.value: approved} if approved else {}
    labels = device_labels(made.spec.node_name, hardware)
    return replace(
        made,
        metadata=replace(made.metadata, labels=labels, annotations=annotations),
        status=replace(made.status, hardware=hardware),
    )


def pools_and_card(approved: str | None) -> tuple[str | None, PendingReason | None]:
    card = card_of_the_page(approved)
    snapshot = Snapshot(
        node=card.spec.node_name, labels={}, state=None, devices=(card,), pools=pools_of_the_page(), faults={}, now=NOW
    )
    wanted = desired_pools(snapshot, [card])[card.name]
    return wanted.pool, wanted.pending


def test_the_card_waits_for_the_approval_that_the_page_gives() -> None:
    assert pools_and_card(None) == (None, PendingReason.APPROVAL)


def test_the_card_joins_the_pool_of_the_page() -> None:
    assert pools_and_card("mine") == ("mine", None)
