"""Every alert of the product."""

from typing import Final

from monitoring.alert import Alert, Group
from monitoring.alerts.cards import CARDS
from monitoring.alerts.nodes import NODES
from monitoring.alerts.pools import POOLS
from monitoring.alerts.processes import PROCESSES
from monitoring.alerts.ray import RAY
from monitoring.alerts.stack import STACK

GROUPS: Final[tuple[Group, ...]] = (CARDS, NODES, POOLS, RAY, STACK, PROCESSES)
ALERTS: Final[tuple[Alert, ...]] = tuple(alert for group in GROUPS for alert in group.alerts)
