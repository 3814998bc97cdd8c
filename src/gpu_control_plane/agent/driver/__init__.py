"""Finds a driver's files on the host, for any vendor."""
