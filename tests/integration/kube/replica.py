"""A replica of a small controller, as a process of its own that tests can stop, freeze and kill.

It raises a counter by one every 50 ms through guarded writes and signs each with its identity.
"""

import sys
from pathlib import Path

from gpu_control_plane.kube import Key, Requeue, Runtime, Selection, Timing, main
from integration.kinds import ConfigMap


def build(runtime: Runtime, namespace: str) -> None:
    counters = runtime.cache(ConfigMap, Selection(namespace, fields="metadata.name=counter"))

    async def raise_it(key: Key) -> Requeue:
        counter = counters.at(key)
        if counter is not None:
            await runtime.client.patch(
                ConfigMap,
                key.name,
                {"data": {"value": str(int(counter.data["value"]) + 1), "writer": runtime.identity}},
                namespace=namespace,
                resource_version=counter.metadata.resource_version,
            )
        return Requeue(after=0.05)

    runtime.controller("counter", raise_it).watch(counters, when=lambda old, _new: old is None)


if __name__ == "__main__":
    kubeconfig, namespace, identity = sys.argv[1:]
    sys.exit(
        main(
            "replica",
            lambda runtime: build(runtime, namespace),
            kubeconfig=Path(kubeconfig),
            namespace=namespace,
            identity=identity,
            timing=Timing(duration=3, deadline=2, renewal=0.5, retry=0.2),
            status_port=None,
        )
    )
