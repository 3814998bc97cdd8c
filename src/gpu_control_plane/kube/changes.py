"""Which changes of an object concern its readers: predicates for `Controller.watch(…, when=…)`."""

from gpu_control_plane.kube.objects import Object


def spec_changed(old: Object | None, new: Object | None) -> bool:
    """Whether an object came, went, or is asked for something else; not whether its status moved.

    One that was deleted and made anew between two looks is another.
    """
    return old is None or new is None or _version(old) != _version(new)


def labels_changed(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old.metadata.labels != new.metadata.labels


def _version(item: Object) -> tuple[str, int, bool]:
    return item.metadata.uid, item.metadata.generation, item.deleting
