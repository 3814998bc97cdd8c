"""The agent of one real node: hardware below, kubelet beside, API server above."""
