"""How cards are cut into MIG instances."""
