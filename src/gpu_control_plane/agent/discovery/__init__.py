"""Which nodes have cards at all, for clusters without Node Feature Discovery: reads /sys, needs no privilege."""
