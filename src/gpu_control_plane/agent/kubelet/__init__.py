"""The agent's side of the kubelet's two APIs: device plugins, and pod resources.

`plugins.DevicePlugins` serves any number of resources from one process, `podresources.PodResources` reads which
container holds which devices, `preference` chooses among devices. Which devices a container gets is decided elsewhere,
behind `interface.Allocator`.
"""
