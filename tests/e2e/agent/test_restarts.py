"""Anything may die: pods go on, nothing leaks, nothing is given out twice."""

import signal

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, settle
from gpu_control_plane.agent.simulated.machine import report_xid, slow_down
from unit.agent.step.builders import exclusive

TRAINING = f"{PREFIX}/training"


def test_a_restarted_kubelet_hears_of_the_cards_at_once(env: AgentEnv) -> None:
    env.order(exclusive(env.card(0), TRAINING), exclusive(env.card(1), TRAINING))
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("steady", limits={TRAINING: 1})
    before, registered = env.cards_in("steady"), env.registrations()
    env.node.kubelet.restart(signal.SIGKILL)
    until(lambda: env.registrations() > registered)
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("later", limits={TRAINING: 1})
    assert env.cards_in("steady") == before
    assert env.cards_in("later") != before
    assert env.cluster_env.container("steady")["restartCount"] == 0
    env.cluster_env.delete_pod("later")


def test_a_killed_agent_that_comes_back_disturbs_no_pod(env: AgentEnv) -> None:
    before = env.cards_in("steady")
    for number in (signal.SIGKILL, signal.SIGTERM):
        env.stop_agent(number)
        env.start_agent()
        env.wait_offered(TRAINING, 2)
    assert env.cards_in("steady") == before
    assert env.cluster_env.container("steady")["restartCount"] == 0
    until(lambda: env.users(0) + env.users(1) == ["steady"])


def test_removed_sockets_are_made_again(env: AgentEnv) -> None:
    registered = env.registrations()
    for socket in env.node.device_plugins.glob("*.sock"):
        if socket.name != "kubelet.sock":
            socket.unlink()
    until(lambda: any(path.name != "kubelet.sock" for path in env.node.device_plugins.glob("*.sock")))
    until(lambda: env.registrations() > registered)
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("after", limits={TRAINING: 1})
    env.cluster_env.delete_pod("after")


def test_a_removed_or_damaged_cdi_file_is_restored_within_a_probe_interval(env: AgentEnv) -> None:
    file = env.node.cdi / "gpu-control-plane.json"
    content = file.read_bytes()
    for damage in (file.unlink, lambda: file.write_text("{")):
        damage()
        until(lambda: file.exists() and file.read_bytes() == content, within=30)  # A probe is made every 15 s.


def test_a_second_agent_waits_until_the_first_has_ended(env: AgentEnv) -> None:
    before = env.cards_in("steady")
    second = AgentEnv(env.cluster_env)
    second.start_agent()
    try:
        until(lambda: "another agent serves this node" in second.readiness(), within=90)
        settle(3)
        assert second.registrations() == 0
        assert env.listening(TRAINING)
        env.stop_agent(signal.SIGKILL)
        until(lambda: second.listening(TRAINING), within=90)
        assert env.cards_in("steady") == before
        second.stop_agent()
    finally:
        second.close()
        env.start_agent()
    env.wait_offered(TRAINING, 2)


def test_an_agent_killed_inside_allocate_fails_that_pod_and_leaks_no_unit(env: AgentEnv) -> None:
    counted = env.admission_errors()
    quick = env.machine
    env.install(slow_down(report_xid(quick, quick.addresses[0], 31), 30.0))
    until(lambda: env.last_xid(0) == 31)  # A harmless error, by which the agent shows that it has seen the change.
    env.cluster_env.create_pod("unlucky", limits={TRAINING: 1}, node=env.node.name)
    settle(2)  # The kubelet is inside Allocate, which takes longer on this node than the agent may.
    env.stop_agent(signal.SIGKILL)
    until(lambda: env.cluster_env.pod("unlucky")["status"]["phase"] == "Failed", within=90)
    assert env.cluster_env.pod("unlucky")["status"]["reason"] == "UnexpectedAdmissionError"
    env.install(quick)
    env.start_agent()
    env.wait_offered(TRAINING, 2)
    until(lambda: env.admission_errors() == counted + 1)
    env.cluster_env.run_pod("replacement", limits={TRAINING: 1})
    assert env.cards_in("replacement") != env.cards_in("steady")
    env.cluster_env.delete_pod("replacement")
    env.cluster_env.delete_pod("unlucky")


def test_a_driver_that_hangs_costs_one_pod_and_the_next_one_waits(env: AgentEnv) -> None:
    quick = env.machine
    env.install(slow_down(report_xid(quick, quick.addresses[0], 13), 40.0))
    until(lambda: env.last_xid(0) == 13)  # As above.
    env.cluster_env.create_pod("unlucky", limits={TRAINING: 1}, node=env.node.name)
    until(lambda: env.cluster_env.pod("unlucky")["status"]["phase"] == "Failed")
    until(lambda: degraded(env) == "DriverHung")
    env.wait_offered(TRAINING, 0)
    env.install(quick)
    env.cluster_env.create_pod("patient", limits={TRAINING: 1})
    until(lambda: env.cluster_env.pod("patient")["status"]["phase"] == "Running", within=150)
    until(lambda: degraded(env) != "DriverHung")
    assert env.cluster_env.container("steady")["restartCount"] == 0
    env.cluster_env.delete_pod("patient")
    env.cluster_env.delete_pod("unlucky")


def degraded(env: AgentEnv) -> str:
    """Why the node is not as it should be."""
    conditions = env.state()["status"].get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Degraded"), "")


def test_after_a_reboot_pods_fail_until_the_agent_has_registered(env: AgentEnv) -> None:
    """A pod with a card that the kubelet admits before the agent is back ends as Failed, for good; its controller
    replaces it. Pods without cards just start again."""
    env.cluster_env.run_pod("plain")
    env.stop_agent(signal.SIGKILL)
    env.node.reboot()
    until(lambda: env.cluster_env.pod("steady")["status"]["phase"] == "Failed", within=150)
    assert env.cluster_env.pod("steady")["status"]["reason"] == "UnexpectedAdmissionError"
    until(lambda: env.cluster_env.pod("plain")["status"]["phase"] == "Running", within=150)
    env.start_agent()
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("fresh", limits={TRAINING: 2})
    assert env.cards_in("fresh") == ["nvidia0", "nvidia1"]
    until(lambda: env.users(0) == env.users(1) == ["fresh"])
