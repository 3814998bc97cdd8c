"""The node's container runtime: whether it can give cards to containers, and what has to be written for that."""
