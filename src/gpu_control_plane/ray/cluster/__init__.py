"""RayCluster: pods of a head and of groups of workers, and what goes with them."""
