"""A Node as our controllers look at it: its name and its labels, and nothing of the status that changes all the time.

One view for all of them, so that one process watches Nodes once.
"""

from typing import ClassVar

from gpu_control_plane.kube.objects import Object, Resource


class Node(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)
