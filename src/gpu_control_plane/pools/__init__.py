"""Which card belongs to which pool: selection, approval, assignments to nodes, release, capacity.

`decide.py` decides for one node and `status.py` for one pool, both without any I/O; `controller.py` carries it out.
"""
