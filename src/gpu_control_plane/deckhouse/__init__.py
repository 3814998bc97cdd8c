"""Cluster bring-up on Deckhouse: one short description of machines and services becomes what dhctl installs from.

`description` is what a person writes, `kinds` what Deckhouse reads; the modules between them are pure and each renders
one area. Nothing here talks to a cluster.
"""
