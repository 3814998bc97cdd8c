"""The agent's side towards the kubelet: devices offered and handed out, and what the kubelet says about their use.

`plugins.Plugins` serves any number of resources from one process, `podresources.PodResources` reads the kubelet's
books, `preference` holds the choice among devices. Whose device is whose is decided elsewhere, behind
`interface.Allocator`.
"""
