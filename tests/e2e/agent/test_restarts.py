"""Anything may die: pods go on, nothing leaks, nothing is given out twice."""

import signal

from blocking_wait import until
from e2e.agent.scene import PREFIX, AgentScene, settle
from gpu_control_plane.agent.simulated.machine import report_xid, slow_down
from unit.agent.step.builders import exclusive

TRAINING = f"{PREFIX}/training"
ADMISSION_ERRORS = "gpu_agent_unexpected_admission_errors_total"


def test_a_restarted_kubelet_hears_of_the_cards_at_once(scene: AgentScene) -> None:
    scene.order(exclusive(scene.card(0), TRAINING), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("steady", limits={TRAINING: 1})
    before, registered = scene.cards_in("steady"), scene.registrations()
    scene.node.kubelet.restart(signal.SIGKILL)
    until(lambda: scene.registrations() > registered)
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("later", limits={TRAINING: 1})
    assert scene.cards_in("steady") == before
    assert scene.cards_in("later") != before
    assert scene.stage.container("steady")["restartCount"] == 0
    scene.stage.delete_pod("later")


def test_a_killed_agent_that_comes_back_disturbs_no_pod(scene: AgentScene) -> None:
    before = scene.cards_in("steady")
    for number in (signal.SIGKILL, signal.SIGTERM):
        scene.stop_agent(number)
        scene.start_agent()
        scene.wait_offered(TRAINING, 2)
    assert scene.cards_in("steady") == before
    assert scene.stage.container("steady")["restartCount"] == 0
    until(lambda: scene.users(0) + scene.users(1) == ["steady"])


def test_removed_sockets_are_made_again(scene: AgentScene) -> None:
    registered = scene.registrations()
    for socket in scene.node.device_plugins.glob("*.sock"):
        if socket.name != "kubelet.sock":
            socket.unlink()
    until(lambda: any(path.name != "kubelet.sock" for path in scene.node.device_plugins.glob("*.sock")))
    until(lambda: scene.registrations() > registered)
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("after", limits={TRAINING: 1})
    scene.stage.delete_pod("after")


def test_an_agent_killed_inside_allocate_fails_that_pod_and_leaks_no_unit(scene: AgentScene) -> None:
    counted = scene.metric(ADMISSION_ERRORS)
    quick = scene.machine
    scene.install(slow_down(report_xid(quick, quick.addresses[0], 31), 30.0))
    until(lambda: scene.last_xid(0) == 31)  # A harmless error, by which the agent shows that it has seen the change.
    scene.stage.create_pod("unlucky", limits={TRAINING: 1}, node=scene.node.name)
    settle(2)  # The kubelet is inside Allocate, which takes longer on this node than the agent may.
    scene.stop_agent(signal.SIGKILL)
    until(lambda: scene.stage.pod("unlucky")["status"]["phase"] == "Failed", within=90)
    assert scene.stage.pod("unlucky")["status"]["reason"] == "UnexpectedAdmissionError"
    scene.install(quick)
    scene.start_agent()
    scene.wait_offered(TRAINING, 2)
    until(lambda: scene.metric(ADMISSION_ERRORS) >= 1)
    assert counted == 0, "nothing else was refused so far"
    scene.stage.run_pod("replacement", limits={TRAINING: 1})
    assert scene.cards_in("replacement") != scene.cards_in("steady")
    scene.stage.delete_pod("replacement")
    scene.stage.delete_pod("unlucky")


def test_after_a_reboot_pods_fail_until_the_agent_has_registered(scene: AgentScene) -> None:
    """A pod with a card that the kubelet admits before the agent is back ends as Failed, for good; its controller
    replaces it. Pods without cards just start again."""
    scene.stage.run_pod("plain")
    scene.stop_agent(signal.SIGKILL)
    scene.node.reboot()
    until(lambda: scene.stage.pod("steady")["status"]["phase"] == "Failed", within=150)
    assert scene.stage.pod("steady")["status"]["reason"] == "UnexpectedAdmissionError"
    until(lambda: scene.stage.pod("plain")["status"]["phase"] == "Running", within=150)
    scene.start_agent()
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("fresh", limits={TRAINING: 2})
    assert scene.cards_in("fresh") == ["nvidia0", "nvidia1"]
    until(lambda: scene.users(0) == scene.users(1) == ["fresh"])
