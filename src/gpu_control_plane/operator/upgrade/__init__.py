"""Upgrades the drivers of nodes, a few nodes at a time.

The state of an upgrade is kept in labels and annotations of the Nodes, with NVIDIA's names, so that an upgrade begun by
NVIDIA's operator, or by a process that died, is continued. `step` decides the next action for one node, `rollout` which
nodes start next; `controller`, `scheduler` and `executor` carry it out.
"""
