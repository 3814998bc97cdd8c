"""A runtime for Kubernetes controllers: what every controller needs, and nothing about GPUs.

The names below are the public surface; `docs/runtime.md` shows a complete controller built from them.
A module is imported when one of its names is used: a command needs the client and not the controllers.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_control_plane.kube.apply import Applier, differs
    from gpu_control_plane.kube.cache import Cache
    from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
    from gpu_control_plane.kube.config import Config, load_config
    from gpu_control_plane.kube.controller import Controller, Requeue
    from gpu_control_plane.kube.events import EventRecorder
    from gpu_control_plane.kube.finalizers import add_finalizer, remove_finalizer
    from gpu_control_plane.kube.leader import Leadership, Timing
    from gpu_control_plane.kube.metrics import Metrics
    from gpu_control_plane.kube.objects import (
        Condition,
        FieldManager,
        Key,
        Object,
        ObjectMeta,
        OwnerReference,
        Resource,
    )
    from gpu_control_plane.kube.process import main
    from gpu_control_plane.kube.runtime import Runtime
    from gpu_control_plane.kube.signal import Signal

__all__ = [
    "EVERYTHING",
    "Applier",
    "Cache",
    "Client",
    "Condition",
    "Config",
    "Controller",
    "EventRecorder",
    "FieldManager",
    "Key",
    "Leadership",
    "Metrics",
    "Object",
    "ObjectMeta",
    "OwnerReference",
    "Requeue",
    "Resource",
    "Runtime",
    "Selection",
    "Signal",
    "Timing",
    "add_finalizer",
    "differs",
    "load_config",
    "main",
    "remove_finalizer",
]

_MODULES = {
    "EVERYTHING": "client",
    "Applier": "apply",
    "Cache": "cache",
    "Client": "client",
    "Condition": "objects",
    "Config": "config",
    "Controller": "controller",
    "EventRecorder": "events",
    "FieldManager": "objects",
    "Key": "objects",
    "Leadership": "leader",
    "Metrics": "metrics",
    "Object": "objects",
    "ObjectMeta": "objects",
    "OwnerReference": "objects",
    "Requeue": "controller",
    "Resource": "objects",
    "Runtime": "runtime",
    "Selection": "client",
    "Signal": "signal",
    "Timing": "leader",
    "add_finalizer": "finalizers",
    "differs": "apply",
    "load_config": "config",
    "main": "process",
    "remove_finalizer": "finalizers",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
