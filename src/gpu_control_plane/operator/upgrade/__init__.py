"""Takes nodes to a new driver, a few at a time: `build_upgrades` adds it to a process.

Everything it knows is in labels and annotations of the Nodes, in NVIDIA's own words, so that an upgrade begun by
NVIDIA's operator, or by a process that died, goes on. `step` says what comes next for one node, `rollout` whose turn
it is, `controller` does it.
"""

from gpu_control_plane.operator.upgrade.controller import Upgrades, build_upgrades
from gpu_control_plane.operator.upgrade.groups import Campaign, Campaigns

__all__ = ["Campaign", "Campaigns", "Upgrades", "build_upgrades"]
