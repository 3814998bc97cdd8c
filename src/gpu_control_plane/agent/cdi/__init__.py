"""The CDI specification of the node: what a container gets with a card."""
