"""The agents of all simulated nodes, in one process."""
