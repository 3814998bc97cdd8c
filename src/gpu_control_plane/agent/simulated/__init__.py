"""Simulated cards: a document describes them, a backend plays their driver."""
