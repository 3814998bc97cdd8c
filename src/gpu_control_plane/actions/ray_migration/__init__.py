"""From KubeRay's operator to ours: what there is, what would come of it, and the change of hands.

The objects of Ray stay as they are. What would happen to them is worked out by the operator's own decisions.
"""
