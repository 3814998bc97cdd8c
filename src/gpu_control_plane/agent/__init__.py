"""The node agent: what a GPU node knows, offers to pods and answers for. For now its hardware is simulated.

`python -m gpu_control_plane.agent --simulated` runs the agents of all simulated nodes in one process.
"""
