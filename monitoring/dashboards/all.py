"""Every dashboard of the product."""

from typing import Final

from monitoring.dashboards.inventory import INVENTORY
from monitoring.dashboards.node import NODE
from monitoring.dashboards.ray import RAY
from monitoring.dashboards.workloads import WORKLOADS

DASHBOARDS: Final = (INVENTORY, NODE, WORKLOADS, RAY)
