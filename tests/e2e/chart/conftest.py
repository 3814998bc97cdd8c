"""Helm, as the tests of the chart use it."""

from helm.conftest import helm, tools

__all__ = ["helm", "tools"]
