"""Vendors of cards: one folder each, behind the one interface of `interface`; `registry` finds them.

docs/adding-a-vendor.md walks through a new one.
"""
