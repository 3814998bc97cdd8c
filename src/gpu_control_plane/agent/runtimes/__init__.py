"""The node's container runtime: whether it injects cards into containers, and its configuration for that."""
