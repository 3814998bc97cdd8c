"""Cards that an annotation of the Node describes: their device files do no harm, everything around them is real."""

from collections.abc import Iterable

import structlog

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.node.options import Options
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.checks import SimulatedChecks
from gpu_control_plane.agent.simulated.machine import HARDWARE, Machine, SimulationError, read_machine
from gpu_control_plane.agent.simulated.models import VENDOR
from gpu_control_plane.agent.vendors.interface import VendorChecks, VendorSupport
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.kube.cache import Cache

_INSTANCE = "MIG-"

_log = structlog.get_logger(component="agent.simulation")


class Simulation:
    """Keeps one simulated backend in step with the Node's annotation and with what pods hold.

    An annotation that makes no sense is told of; the hardware stays what it was.
    """

    def __init__(self, options: Options, nodes: Cache[NodeView]) -> None:
        self._options = options
        self._nodes = nodes
        self._made: SimulatedBackend | None = None
        nodes.on_change(self._follow)

    def backend(self) -> Backend:
        node = self._nodes.get(self._options.node)
        try:
            machine = self._described(node)
        except SimulationError as error:
            if self._made is not None:
                return self._made
            raise BackendError(str(error)) from error
        if node is None or machine is None:
            raise BackendError(f"The Node has no annotation {HARDWARE}: give it cards with `kubectl gpu simulate`.")
        if self._made is None:
            boot = node.status.node_info.boot_id
            root = self._options.simulated_devices
            self._made = SimulatedBackend(self._options.node, machine, device_root=root, boot=boot)
        return self._made

    def vendor(self) -> VendorSupport:
        """The vendor of the simulated cards."""
        return support_of(VENDOR)

    def checks(self, vendor: VendorChecks) -> VendorChecks:
        """The vendor's checks, without those of a driver that is not there."""
        return SimulatedChecks(vendor)

    def occupy(self, held: Iterable[str]) -> None:
        """Pods hold these, by the addresses of cards and the UUIDs of instances."""
        if self._made is not None:
            instances = {name for name in held if name.startswith(_INSTANCE)}
            self._made.occupy(set(held) - instances, instances)

    def _follow(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is not None and new is not None and old.metadata.annotations == new.metadata.annotations:
            return
        try:
            machine = self._described(new)
        except SimulationError as error:
            _log.warning("the hardware stays as it was", why=str(error))
            return
        if machine is not None and self._made is not None:
            self._made.update(machine)

    def _described(self, node: NodeView | None) -> Machine | None:
        return read_machine(self._options.node, node.metadata.annotations) if node else None
