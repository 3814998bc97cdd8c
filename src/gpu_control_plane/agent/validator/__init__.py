"""Checks the node's software: driver, toolkit, cards and plugin."""
