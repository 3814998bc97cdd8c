"""Backup and restore of what people have decided: pools, the cards in them, and the software of nodes.

Whatever controllers work out by themselves is left out: they do so again, from what nodes report.
"""
