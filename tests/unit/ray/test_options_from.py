"""The operator of Ray does what its flags, the environment and the file say, or says why it does not start."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu_control_plane.gitops import kuberay
from gpu_control_plane.kube.errors import ConfigError
from gpu_control_plane.ray.options import BatchScheduler, RayOptions
from gpu_control_plane.ray.options_from import DOMAIN, DURATIONS, SWITCHES, options_from, timings_from
from gpu_control_plane.ray.settings import Settings
from gpu_control_plane.settings import waiting_times


def test_without_anything_the_switches_are_those_of_kuberay() -> None:
    assert options_from({}) == RayOptions()
    assert timings_from({}) == {}


@pytest.mark.parametrize(("name", "option"), SWITCHES.items())
def test_each_switch_sets_its_option(name: str, option: str) -> None:
    for word, value in {"true": True, "True": True, "1": True, "false": False, "FALSE": False, "0": False}.items():
        assert getattr(options_from({name: word}), option) is value
    assert options_from({name: ""}) == RayOptions(), "an empty variable says nothing"


def test_every_switch_of_the_options_has_its_variable_or_flag() -> None:
    flags = {"gang", "use_kubernetes_proxy", "openshift"}
    switches = {each.name for each in msgspec.structs.fields(RayOptions) if each.type is bool}
    assert switches - flags == set(SWITCHES.values())


def test_flags_and_durations_are_taken() -> None:
    made = options_from(
        {DOMAIN: "k8s.example.com."},
        watch_namespaces=("research", "serving", "research"),
        batch_scheduler="kai-scheduler",
        gang=False,
        use_kubernetes_proxy=True,
    )
    assert made.watch_namespaces == ("research", "serving")
    assert made.batch_scheduler is BatchScheduler.KAI
    assert (made.gang, made.use_kubernetes_proxy) == (False, True)
    assert made.cluster_domain == "k8s.example.com"
    assert set(timings_from(dict.fromkeys(DURATIONS, "90")).values()) == {timedelta(seconds=90)}


def test_durations_have_names_of_waiting_times() -> None:
    assert set(DURATIONS.values()) <= {each.field for each in waiting_times(Settings)}


def test_defaults_of_pods_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "defaults.yaml"
    file.write_text(
        "defaultContainerEnvs: [{name: HTTP_PROXY, value: 'http://proxy:3128'}]\n"
        "defaultPodLabels: {team: ray}\n"
        "workerSidecarContainers: [{name: logs, image: fluent-bit}]\n"
    )
    made = options_from({}, defaults=file)
    assert made.default_container_envs == ({"name": "HTTP_PROXY", "value": "http://proxy:3128"},)
    assert made.default_pod_labels == {"team": "ray"}
    assert made.worker_sidecars == ({"name": "logs", "image": "fluent-bit"},)
    assert made.head_sidecars == ()


@pytest.mark.parametrize(
    ("environment", "flags", "sentence"),
    [
        ({"ENABLE_PROBES_INJECTION": "yes"}, {}, r"ENABLE_PROBES_INJECTION is true or false, and not 'yes'"),
        ({DOMAIN: "cluster local"}, {}, r"CLUSTER_DOMAIN is the domain of Services"),
        ({}, {"watch_namespaces": ("a,b",)}, r"--ray-watch-namespace takes the name of one namespace"),
        ({}, {"batch_scheduler": "default"}, r"--ray-batch-scheduler is one of volcano, yunikorn, .* not 'default'"),
        ({}, {"defaults": Path("/nowhere/defaults.yaml")}, r"cannot be read: /nowhere/defaults.yaml"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    environment: dict[str, str], flags: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        options_from(environment, **flags)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("defaultPodLabel: {a: b}", r"unknown field `defaultPodLabel`"),
        ("defaultPodLabels: {a: 1}", r"Expected `str`, got `int`"),
        ("headSidecarContainers: [{image: x}]", r"an entry of headSidecarContainers has no name"),
        ("a: [", r"are no YAML"),
        ("[]", r"Expected `object`, got `array`"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        options_from({}, defaults=tmp_path / "defaults.yaml")


@pytest.mark.parametrize("value", ["0", "-1", "5m", "1.5"])
def test_durations_are_whole_seconds(value: str) -> None:
    (name, *_) = DURATIONS
    with pytest.raises(ConfigError, match="is a number of seconds"):
        timings_from({name: value})


def test_each_variable_of_kuberay_goes_one_way() -> None:
    assert DURATIONS.keys() == kuberay.TIMINGS.keys()
    assert not {*SWITCHES, *DURATIONS, DOMAIN} & kuberay.USELESS.keys()
