"""Which DaemonSet of several has the plain name. A variant that runs under a name keeps it: a new name means new
pods."""

import pytest

from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from gpu_control_plane.operator.stack.variants import by_system, suffixed_name
from unit.operator.stack.driver_builders import policy

NAME = "nvidia-driver-daemonset"
NOBLE, JAMMY, RHEL = (
    OperatingSystem("ubuntu", "24.04"),
    OperatingSystem("ubuntu", "22.04"),
    OperatingSystem("rhel", "9.4"),
)


def names(held: dict[str, str], **nodes: int) -> dict[str, str]:
    """The name of each system's DaemonSet."""
    systems = {"noble": NOBLE, "jammy": JAMMY, "rhel": RHEL}
    kinds = {NodeKind(system=systems[word]): count for word, count in nodes.items()}
    render_input = RenderInput(policy=policy(), platform=Platform(namespace="gpu", current_variants=held), kinds=kinds)
    return {
        variant.label: NAME if variant.plain else suffixed_name(NAME, variant.label)
        for variant in by_system(render_input, NAME)
    }


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
        # The DaemonSet with the plain name was deleted: the variant that had it gets it again.
        (
            {name: word for name, word in MIXED.items() if name != NAME},
            {"noble": 1, "jammy": 9, "rhel": 5},
            "ubuntu24.04",
        ),
        # A new variant may have it when no other has it.
        ({f"{NAME}-rhel9": "rhel9"}, {"rhel": 5, "jammy": 1}, "ubuntu22.04"),
        # A DaemonSet of another operand means nothing.
        ({f"{NAME}-exporter": "ubuntu22.04"}, {"jammy": 1}, "ubuntu22.04"),
    ],
)
def test_which_variant_has_the_plain_name(held: dict[str, str], nodes: dict[str, int], plain: str | None) -> None:
    found = names(held, **nodes)
    assert [word for word, name in found.items() if name == NAME] == ([plain] if plain else [])
    for name, word in held.items():
        if word in found and name == suffixed_name(NAME, word):
            assert found[word] == name, "it was renamed"
