"""What can go wrong around the local cluster, each as a sentence that says what to do.

A command line prints the message alone, so every message says what, where and what next.
"""


class LocalError(Exception):
    """Root of the tree: something about the local cluster or its binaries did not work."""


class UnsupportedPlatform(LocalError):
    """No Kubernetes binaries exist for this operating system or processor."""


class NoSpace(LocalError):
    """A disk is full. Nothing half-written was left behind."""


class ChecksumMismatch(LocalError):
    """A download is not what its publisher says it is. It was removed, and nothing else was tried."""


class DownloadFailed(LocalError):
    """A release could not be fetched; another source may still have it."""


class BuildFailed(LocalError):
    """A build with Go did not succeed."""


class BinaryUnavailable(LocalError):
    """No source had a program: not the environment, not the cache, no download and no build."""


class PortTaken(LocalError):
    """A port that was asked for is in use."""


class ComponentFailed(LocalError):
    """A component died or was not ready in time."""


class ClusterBusy(LocalError):
    """Another process is working on the same cluster folder."""


class StateUnreadable(LocalError):
    """The cluster's state file or certificates cannot be read."""
