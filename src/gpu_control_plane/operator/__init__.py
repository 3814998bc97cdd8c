"""The software stack: ClusterPolicy and NVIDIADriver as NVIDIA's operator has them, and driver upgrades.

`labelling` decides which nodes get which operands, `stack` renders and applies the states of a ClusterPolicy, `drivers`
those of NVIDIADrivers, `upgrade` takes nodes to a new driver. `active_policy` answers for all of them what is asked and
whether they may write; `nvidia_lease` keeps this operator idle while NVIDIA's own is active. `controller` connects the
parts, `migration` compares both operators and switches between them.
"""
