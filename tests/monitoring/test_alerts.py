"""Each alert, the Event about the same thing and its runbook belong together."""

import re
from pathlib import Path
from typing import Final

import pytest
from monitoring.alert import RUNBOOKS, Alert
from monitoring.alerts.groups import ALERTS, GROUPS

from gpu_control_plane.api import DEFINITIONS, names, nvidia
from gpu_control_plane.api.names import EventReason, Reason
from gpu_control_plane.api.nvidia import names as stack
from gpu_control_plane.api.nvidia.names import StackEvent
from gpu_control_plane.api.ray import DEFINITIONS as RAY
from gpu_control_plane.kube.process_events import ProcessEvent
from gpu_control_plane.ray.waiting.events import WaitingEvent

ROOT: Final = Path(__file__).parents[2]
SECTIONS: Final = ("Cause", "Check", "Cure")
OF_KUBERNETES: Final = {
    *("node", "nodes", "pods", "deployment", "daemonset", "lease", "secret", "events"),
    *("nodefeature", "servicemonitor"),
}
"""Kinds of others that runbooks look at."""
KINDS: Final = OF_KUBERNETES | {
    word
    for each in (*DEFINITIONS, *nvidia.DEFINITIONS, *RAY)
    for word in (each.resource.plural, each.resource.kind.lower(), *each.short_names)
}
KEYS: Final = {
    member.value
    for vocabulary in (names.Annotation, names.Label, stack.NodeLabel, stack.NodeAnnotation, stack.PodLabel)
    for member in vocabulary
}

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


@every_alert
def test_an_alert_has_an_event(alert: Alert) -> None:
    """`test_alert_events` raises what it is about and sees the Event."""
    assert alert.events
    assert all(
        isinstance(reason, EventReason | StackEvent | WaitingEvent | ProcessEvent | Reason) for reason in alert.events
    )


@every_alert
def test_the_runbook_says_cause_check_and_cure(alert: Alert) -> None:
    page = _runbook(alert)
    assert page.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(SECTIONS)
    assert all(_section(page, title).strip() for title in SECTIONS)
    assert "kubectl " in _section(page, "Check").split("```")[1]


@every_alert
def test_the_runbook_names_the_events_and_the_log_line(alert: Alert) -> None:
    page = _runbook(alert)
    assert all(f"`{reason.value}`" in page for reason in alert.events)
    assert alert.log is None or f"`{alert.log.event}`" in page


@every_alert
def test_the_runbook_leads_from_the_labels_of_the_alert_to_its_object(alert: Alert) -> None:
    """Cards are named by their UUID in what they measure, and by another name in Kubernetes."""
    if "UUID" in alert.expr:
        assert "UUID:.status.hardware.uuid" in _section(_runbook(alert), "Check")


@every_alert
def test_commands_of_the_runbook_look_at_what_exists(alert: Alert) -> None:
    page = _runbook(alert)
    for kind in re.findall(r"kubectl (?:-n \S+ )?(?:get|describe|label|annotate) ([a-z]+)", page):
        assert kind in KINDS, kind
    for key in re.findall(r"\b(?:gpu\.deckhouse\.io|nvidia\.com)/[\w.-]*\w", page):
        assert key in KEYS or key == "nvidia.com/gpu" or key.startswith("nvidia.com/gpu.deploy"), key


@every_alert
def test_logs_are_those_of_the_right_pod_and_long_enough(alert: Alert) -> None:
    """A Deployment gives the log of any one replica, and a selector ten lines of each of a thousand agents."""
    for command in re.findall(r"kubectl [^\n|`]*\blogs [^\n|`]*", _runbook(alert) + alert.description):
        assert "logs deployment/" not in command
        assert "logs -l app.kubernetes.io/component=agent" not in command
        assert "--tail=" in command or "logs -l" not in command


@every_alert
def test_a_look_at_the_host_is_allowed_to_see_its_devices(alert: Alert) -> None:
    """Without this profile the container is not privileged, and neither `nvidia-smi` nor `dmesg` works in it."""
    for command in re.findall(r"kubectl debug node.*", _runbook(alert)):
        assert "--profile=sysadmin -- chroot /host " in command


@every_alert
def test_links_of_the_runbook_lead_somewhere(alert: Alert) -> None:
    folder = ROOT / RUNBOOKS
    for target in re.findall(r"\]\(([^)#]+)", _runbook(alert)):
        assert (folder / target).exists(), target


@every_alert
def test_the_text_is_for_people(alert: Alert) -> None:
    assert alert.summary.endswith(".")
    assert alert.description
    assert len(alert.summary) < 120
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", alert.expr)))) or {"node"}
    assert used <= kept, "a label that the expression does not keep would be shown empty"


def test_there_is_no_runbook_without_its_alert() -> None:
    assert {path.stem for path in (ROOT / RUNBOOKS).glob("*.md")} == {alert.name for alert in ALERTS}


def test_names_are_used_once() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    assert len({group.name for group in GROUPS}) == len(GROUPS)


def _runbook(alert: Alert) -> str:
    return (ROOT / alert.runbook).read_text()


def _section(page: str, title: str) -> str:
    return page.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]
