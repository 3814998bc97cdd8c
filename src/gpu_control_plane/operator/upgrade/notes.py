"""What is noted instead of a driver's revision when the upgrade of a node failed for another reason."""

from typing import Final

NO_DRIVER: Final = "no-driver"
"""There was none to upgrade to."""
LOST: Final = "node-lost"
"""The node was not ready when the upgrade failed: that says nothing of the driver."""
