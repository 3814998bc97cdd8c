"""What a node's own driver, and our agent on it, change about its labels."""

import msgspec
import pytest

from gpu_control_plane.api.nvidia.names import AGENT, DEPLOY, PRE_INSTALLED, TRUE
from gpu_control_plane.operator.labelling.decide import (
    AgentReport,
    HostDriver,
    LabelSpec,
    NodeInput,
    decide,
    gets_driver,
)
from unit.operator.labelling.builders import (
    AGENT_PAUSED,
    CAPABLE,
    MIG,
    OFF,
    PASSTHROUGH,
    PAUSED,
    PRESENT,
    SANDBOX,
    SPEC,
    VFIO,
    VM_VGPU,
    C,
    P,
    after,
    keys,
    labelled,
    node,
)

HOST = AgentReport(host_driver=HostDriver("580.159.04"), driver_known=True)
BROKEN = AgentReport(host_driver=HostDriver("440.33", "too old"), driver_known=True)
NO_HOST = AgentReport(driver_known=True)
UNKNOWN = AgentReport()


@pytest.mark.parametrize("report", [HOST, BROKEN], ids=["works", "does not work"])
@pytest.mark.parametrize("value", [None, "", TRUE, PRE_INSTALLED])
def test_a_host_with_a_driver_gets_none_of_ours(report: AgentReport, value: str | None) -> None:
    before = P if value is None else P | keys("driver", value=value)
    assert labelled(before, SPEC, report) == P | PRESENT | C | keys("driver", value=PRE_INSTALLED)


@pytest.mark.parametrize(
    ("value", "report", "wanted"),
    [
        (PRE_INSTALLED, NO_HOST, TRUE),
        (PRE_INSTALLED, UNKNOWN, PRE_INSTALLED),
        (TRUE, UNKNOWN, TRUE),
        ("", UNKNOWN, TRUE),
        ("", NO_HOST, TRUE),
        (PAUSED, NO_HOST, PAUSED),
    ],
)
def test_only_a_host_known_to_have_no_driver_gets_ours_back(value: str, report: AgentReport, wanted: str) -> None:
    assert labelled(P | keys("driver", value=value), SPEC, report)[f"{DEPLOY}driver"] == wanted


@pytest.mark.parametrize("value", ["", TRUE, PRE_INSTALLED])
def test_a_driver_pod_is_not_taken_for_the_hosts_driver(value: str) -> None:
    before = node(P | keys("driver", value=value))
    subject = NodeInput(before, HOST, driver_pod=True)
    assert after(before, decide(subject, SPEC)).metadata.labels[f"{DEPLOY}driver"] == (value or TRUE)


def test_without_driver_containers_a_host_driver_changes_no_label() -> None:
    off = msgspec.structs.replace(SPEC, driver_enabled=False)
    assert labelled(P, off, HOST) == P | PRESENT | C


@pytest.mark.parametrize(
    ("labels", "spec", "meant"),
    [
        (keys("driver"), SPEC, True),
        ({}, SPEC, True),
        (keys("driver", value=""), SPEC, True),
        (keys("driver", value=PAUSED), SPEC, True),
        (keys("driver", value=PRE_INSTALLED), SPEC, False),
        (keys("driver", value="false"), SPEC, False),
        (keys("driver") | OFF, SPEC, False),
        (keys("driver") | PASSTHROUGH, SPEC, True),
        (keys("driver") | PASSTHROUGH, SANDBOX, False),
        (VM_VGPU, SANDBOX, False),
    ],
)
def test_a_driver_container_goes_to_nodes_whose_host_brings_none(
    labels: dict[str, str], spec: LabelSpec, meant: bool
) -> None:
    assert gets_driver(P | labels, spec) is meant


SERVES = AgentReport(agent_plugin=True)
OURS = keys("device-plugin", "operator-validator", value=AGENT)


@pytest.mark.parametrize(
    ("before", "report", "wanted"),
    [
        (P, SERVES, C | OURS),
        (P | C, SERVES, C | OURS),
        (P | dict.fromkeys(C, ""), SERVES, C | OURS),
        (P | C | OURS, UNKNOWN, C),
        (P | C | MIG, SERVES, C | OURS | keys("mig-manager", value=AGENT)),
        (P | C | OURS | keys("mig-manager", value=AGENT), UNKNOWN, C | MIG),
        (P | CAPABLE, SERVES, CAPABLE | C | OURS | keys("mig-manager", value=AGENT)),
        (P | C | keys("device-plugin", value=PAUSED), SERVES, C | OURS | keys("device-plugin", value=PAUSED)),
        (P | C | dict.fromkeys(OURS, AGENT_PAUSED), SERVES, C | dict.fromkeys(OURS, AGENT_PAUSED)),
        (P | C | dict.fromkeys(OURS, AGENT_PAUSED), UNKNOWN, C | dict.fromkeys(OURS, AGENT_PAUSED)),
        (
            P | C | OURS | keys("mig-manager", value=AGENT_PAUSED),
            SERVES,
            C | OURS | keys("mig-manager", value=AGENT_PAUSED),
        ),
        (
            P | C | keys("operator-validator", value="false"),
            SERVES,
            C | OURS | keys("operator-validator", value="false"),
        ),
        (P | C | OURS | keys("container-toolkit", value=AGENT), SERVES, C | OURS),
        (P | C | keys("container-toolkit", value=AGENT), UNKNOWN, C),
        (P | OFF | C | OURS, SERVES, OFF),
    ],
    ids=[
        *("new", "from true", "empty", "back", "MIG", "MIG back", "MIG new", "paused", "paused as the agent's"),
        *("paused, and the agent has left", "MIG paused", "a person's word", "the toolkit stays"),
        *("the toolkit comes back", "operands off"),
    ],
)
def test_what_the_agent_does_itself_is_not_done_twice(
    before: dict[str, str], report: AgentReport, wanted: dict[str, str]
) -> None:
    assert labelled(before, SPEC, report) == P | PRESENT | wanted


def test_the_agent_changes_nothing_on_nodes_for_virtual_machines() -> None:
    assert labelled(P | PASSTHROUGH, SANDBOX, SERVES) == P | PASSTHROUGH | PRESENT | VFIO
