"""From KubeRay's operator to ours: what there is, what would come of it, and the take-over.

The objects of Ray stay as they are. What would happen to them is worked out by the operator's own decisions.
"""
