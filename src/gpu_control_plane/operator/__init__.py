"""The software stack: ClusterPolicy and NVIDIADriver as NVIDIA's operator has them, and driver upgrades.

`labelling` says which nodes get what, `stack` renders and applies the states of a ClusterPolicy, `drivers` those of
NVIDIADrivers, `upgrade` takes nodes to a new driver. `charge` tells all of them what is asked and whether they may
write; `rival` keeps out of the way of NVIDIA's own operator. `controller` puts the parts together.
"""
