"""Which DaemonSet of several has the plain name. Whoever runs under a name keeps it: a new name is a new pod."""

import pytest

from gpu_control_plane.operator.node_facts import NodeKind, System
from gpu_control_plane.operator.stack.render_input import Platform, Stage
from gpu_control_plane.operator.stack.variants import by_system, name_of
from unit.operator.stack.driver_scene import policy

NAME = "nvidia-driver-daemonset"
NOBLE, JAMMY, RHEL = System("ubuntu", "24.04"), System("ubuntu", "22.04"), System("rhel", "9.4")


def names(held: dict[str, str], **nodes: int) -> dict[str, str]:
    """The name of each system's DaemonSet."""
    systems = {"noble": NOBLE, "jammy": JAMMY, "rhel": RHEL}
    kinds = {NodeKind(system=systems[word]): count for word, count in nodes.items()}
    stage = Stage(policy=policy(), platform=Platform(namespace="gpu", held=held), kinds=kinds)
    return {variant.word: NAME if variant.plain else name_of(NAME, variant.word) for variant in by_system(stage, NAME)}


MIXED = {NAME: "ubuntu24.04", f"{NAME}-ubuntu22.04": "ubuntu22.04", f"{NAME}-rhel9": "rhel9"}


@pytest.mark.parametrize(
    ("held", "nodes", "plain"),
    [
        ({}, {"noble": 1, "jammy": 9}, "ubuntu22.04"),
        ({NAME: "ubuntu24.04"}, {"noble": 1, "jammy": 9}, "ubuntu24.04"),
        (MIXED, {"noble": 1, "jammy": 9, "rhel": 5}, "ubuntu24.04"),
        # The system behind the plain name has gone: the others run under names of their own, and keep them.
        (MIXED, {"jammy": 9, "rhel": 5}, None),
        (MIXED, {"jammy": 9}, None),
        # Somebody deleted the DaemonSet with the plain name: it comes back for those who had it.
        (
            {name: word for name, word in MIXED.items() if name != NAME},
            {"noble": 1, "jammy": 9, "rhel": 5},
            "ubuntu24.04",
        ),
        # A newcomer may have it when nobody does.
        ({f"{NAME}-rhel9": "rhel9"}, {"rhel": 5, "jammy": 1}, "ubuntu22.04"),
        # A DaemonSet of another operand means nothing.
        ({f"{NAME}-exporter": "ubuntu22.04"}, {"jammy": 1}, "ubuntu22.04"),
    ],
)
def test_who_has_the_plain_name(held: dict[str, str], nodes: dict[str, int], plain: str | None) -> None:
    found = names(held, **nodes)
    assert [word for word, name in found.items() if name == NAME] == ([plain] if plain else [])
    for name, word in held.items():
        if word in found and name == name_of(NAME, word):
            assert found[word] == name, "it was renamed"
