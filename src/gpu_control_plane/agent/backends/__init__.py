"""What the agent asks of hardware, and the backend of a node without a driver: the PCI bus."""
