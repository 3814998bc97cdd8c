"""Publishes which nodes have cards, for clusters without Node Feature Discovery. Reads /sys, needs no privileges."""
