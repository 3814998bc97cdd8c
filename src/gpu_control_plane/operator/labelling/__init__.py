"""Labels of nodes: they say which operands of the software stack go where."""
