"""Predicates for `Controller.watch(…, when=…)`: which changes of an object matter."""

from gpu_control_plane.kube.objects import Object


def spec_changed(old: Object | None, new: Object | None) -> bool:
    """Whether an object was created or deleted or has another spec; a change of its status does not count.

    One that was deleted and created again between two events is another object.
    """
    return old is None or new is None or _version(old) != _version(new)


def labels_changed(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old.metadata.labels != new.metadata.labels


def _version(item: Object) -> tuple[str, int, bool]:
    return item.metadata.uid, item.metadata.generation, item.deleting
