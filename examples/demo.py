"""`make demo`: a local cluster with the GPU API, and the example controller at work in it. Safe to run again."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpu_control_plane.api.install import install_crds
from gpu_control_plane.cli.screen import OK, Screen
from gpu_control_plane.cli.summary import show_summary
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.local import LocalError
from gpu_control_plane.local.companions import Companion
from gpu_control_plane.local.folders import cluster_folder
from gpu_control_plane.local.kubectl import find_kubectl
from gpu_control_plane.local.lifecycle import Wish, bring_up, run_beside
from gpu_control_plane.local.status import cluster_status

_NAME = "gpu"
_TEAM = "team-vision"
_ROOT = Path(__file__).parents[1]


def main() -> int:
    screen = Screen(sys.stdout)
    try:
        _show(screen)
    except (LocalError, KubeError, DemoFailed) as error:
        Screen(sys.stderr).failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


class DemoFailed(Exception):
    """A stage did not get where it should; the sentence says which one and where to look."""


def _show(screen: Screen) -> None:
    screen.line(screen.style("1. A real control plane, with the GPU API in it", bold=True))
    result = bring_up(Wish(name=_NAME), screen, install_crds)
    for sentence in result.resources:
        screen.mark(OK, sentence)

    screen.line()
    screen.line(screen.style("2. A controller of 30 lines: a quota for every namespace that asks for one", bold=True))
    command = (sys.executable, "-m", "examples.namespace_quotas")
    log = run_beside(_NAME, Companion(name="namespace-quotas", command=command, environ={"PYTHONPATH": str(_ROOT)}))
    screen.mark(OK, f"namespace-quotas runs; its log is {log}")
    with screen.step(f"A namespace asks for 4 CPUs: {_TEAM}"):
        _kubectl("apply", "-f", "-", given=_namespace(cpus="4"))
        _until(lambda: _quota() == "4", f"{_TEAM} got no quota; look into {log}")
    with screen.step("Somebody deletes the quota; the controller puts it back"):
        before = _quota_uid()
        _kubectl("delete", "resourcequota", "team", "-n", _TEAM)
        _until(lambda: _quota() == "4" and _quota_uid() != before, f"the quota did not come back; look into {log}")

    screen.line()
    screen.line(screen.style("3. What is there now", bold=True))
    for line in _kubectl("get", "resourcequota", "-A").splitlines():
        screen.line(f"  {line}")
    screen.line()
    show_summary(screen, cluster_status(_NAME))
    for command_line in (
        "kubectl explain gpupool.spec",
        f"kubectl events -n default --for namespace/{_TEAM}",
        f"kubectl label namespace {_TEAM} example.com/cpus=8 --overwrite",
    ):
        screen.line(f"  {screen.style(command_line, fg='cyan')}")


def _namespace(cpus: str) -> str:
    labels = {"example.com/cpus": cpus}
    return json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _TEAM, "labels": labels}})


def _quota() -> str:
    template = "jsonpath={.status.hard.requests\\.cpu}"
    return _kubectl("get", "resourcequota", "team", "-n", _TEAM, "--ignore-not-found", "-o", template)


def _quota_uid() -> str:
    return _kubectl("get", "resourcequota", "team", "-n", _TEAM, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


def _until(condition: Callable[[], bool], otherwise: str, *, within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailed(f"After {within:g} s {otherwise}.")
        time.sleep(0.1)


def _kubectl(*arguments: str, given: str | None = None) -> str:
    program = find_kubectl()
    if program is None:
        raise DemoFailed("kubectl is missing from the cache. Run `kubectl gpu up` again.")
    kubeconfig = cluster_folder(_NAME) / "kubeconfig"
    ran = subprocess.run(
        [str(program), "--kubeconfig", str(kubeconfig), *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise DemoFailed(f"`kubectl {' '.join(arguments)}` failed: {ran.stderr.strip()}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
