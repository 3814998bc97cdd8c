"""Labels and annotations of Ray are what KubeRay's users write."""

import re

from gpu_control_plane.api.ray.names import Annotation, Finalizer, Label

KEY = re.compile(r"[a-z0-9.-]+/[a-z0-9-]+")


def test_every_key_can_be_one() -> None:
    for each in (*Label, *Annotation, *Finalizer):
        assert KEY.fullmatch(each.value), each


def test_keys_are_kuberays() -> None:
    assert Label.IDENTIFIER.value == "ray.io/identifier"
    assert Label.ORIGINATED_FROM_KIND.value == "ray.io/originated-from-crd"
    assert Label.GROUP.value == "ray.io/group"
