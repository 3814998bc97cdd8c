"""NVIDIA's cards: everything in the agent that knows them."""
