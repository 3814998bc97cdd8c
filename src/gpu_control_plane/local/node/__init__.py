"""A real node: a real containerd and a real kubelet, in namespaces of their own on this machine."""
