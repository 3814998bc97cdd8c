"""The node agent: what a GPU node knows, offers to pods and answers for.

`python -m gpu_control_plane.agent` runs the agent of one node, with `--simulated` those of all simulated nodes.
"""
