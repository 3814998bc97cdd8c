"""What is refused of a RayService and of a RayCronJob: rule by rule, with the sentence that its author reads."""

from collections.abc import Mapping

import msgspec
import pytest

from gpu_control_plane.api.ray import RayCronJob, RayService
from gpu_control_plane.rules.ray.cronjob import cronjob_problems
from gpu_control_plane.rules.ray.service import service_problems
from ray_samples import NAMES, changed

CLUSTER = "spec.rayClusterConfig"
STRATEGY = "spec.upgradeStrategy"
STEPS = f"{STRATEGY}.clusterUpgradeOptions"
SERVICE, UPGRADED, CRON = "service-simple", "service-incremental-upgrade", "cronjob-nightly"


def service(edits: Mapping[str, object], name: str = SERVICE) -> RayService:
    return msgspec.convert(changed(name, edits), RayService)


def cron(edits: Mapping[str, object]) -> RayCronJob:
    return msgspec.convert(changed(CRON, edits), RayCronJob)


ROWS: list[tuple[str, str, Mapping[str, object], str, str]] = [
    (
        "a name is short enough for names made from it",
        SERVICE,
        {"metadata.name": "a" * 48},
        "metadata.name",
        "it has 48 characters, and names of pods and Services are made from it: take 47 at most",
    ),
    *(
        (
            f"{text!r} is no time to come up",
            SERVICE,
            {"metadata.annotations": {"ray.io/initializing-timeout": text}},
            "metadata.annotations.ray.io/initializing-timeout",
            f"{text!r} is no time to wait: write 90s, 10m or 1h30m, or a number of seconds",
        )
        for text in ("soon", "0", "-5m", "5 m")
    ),
    (
        "a Service has the shape of one",
        SERVICE,
        {"spec.serveService": {"metadata": {"name": 5}}},
        "spec.serveService",
        "this is no Service: Expected `str | null`, got `int` - at `$.metadata.name`",
    ),
    (
        "the head's Service has the shape of one",
        SERVICE,
        {f"{CLUSTER}.headGroupSpec.headService": {"metadata": "x"}},
        f"{CLUSTER}.headGroupSpec.headService",
        "this is no Service: Expected `object | null`, got `str` - at `$.metadata`",
    ),
    (
        "a cluster goes now or later",
        SERVICE,
        {"spec.rayClusterDeletionDelaySeconds": -1},
        "spec.rayClusterDeletionDelaySeconds",
        "it is less than none: take 0 or more",
    ),
    (
        "a way to upgrade is known",
        SERVICE,
        {STRATEGY: {"type": "Recreate"}},
        f"{STRATEGY}.type",
        "Recreate is none: take one of NewCluster, NewClusterWithIncrementalUpgrade, None",
    ),
    (
        "clusters can scale in an incremental upgrade",
        UPGRADED,
        {f"{CLUSTER}.enableInTreeAutoscaling": False},
        f"{CLUSTER}.enableInTreeAutoscaling",
        "clusters grow and shrink in an incremental upgrade: set it to true",
    ),
    (
        "an incremental upgrade has steps",
        UPGRADED,
        {STEPS: None},
        STEPS,
        "an incremental upgrade needs its steps: give stepSizePercent, intervalSeconds, gatewayClassName",
    ),
    (
        "more than everything is not possible",
        UPGRADED,
        {f"{STEPS}.maxSurgePercent": 101},
        f"{STEPS}.maxSurgePercent",
        "101 is no part of a whole: take 0 to 100",
    ),
    (
        "a step is given",
        UPGRADED,
        {f"{STEPS}.stepSizePercent": None},
        f"{STEPS}.stepSizePercent",
        "nothing is no step: take 0 to 100",
    ),
    (
        "a step goes forward",
        UPGRADED,
        {f"{STEPS}.stepSizePercent": -1},
        f"{STEPS}.stepSizePercent",
        "-1 is no step: take 0 to 100",
    ),
    (
        "a step is not larger than what there is more",
        UPGRADED,
        {f"{STEPS}.stepSizePercent": 60},
        f"{STEPS}.stepSizePercent",
        "60 is more than maxSurgePercent, which is 50: take less",
    ),
    (
        "there is time between two steps",
        UPGRADED,
        {f"{STEPS}.intervalSeconds": 0},
        f"{STEPS}.intervalSeconds",
        "there is no time between two steps: take 1 or more",
    ),
    (
        "there is a class of Gateways",
        UPGRADED,
        {f"{STEPS}.gatewayClassName": ""},
        f"{STEPS}.gatewayClassName",
        "it is needed: traffic moves by a Gateway of that class",
    ),
    (
        "each cluster has its own Service",
        SERVICE,
        {f"{CLUSTER}.headGroupSpec.headService": {"metadata": {"name": "entrance"}}},
        f"{CLUSTER}.headGroupSpec.headService.metadata.name",
        "clusters of a RayService come and go, and each needs a Service of its own: remove the name",
    ),
    (
        "the cluster can be carried out",
        SERVICE,
        {f"{CLUSTER}.workerGroupSpecs.0.minReplicas": 9},
        f"{CLUSTER}.workerGroupSpecs[0].minReplicas",
        "9 is more than maxReplicas, which is 5: lower it, or raise maxReplicas",
    ),
    (
        "annotations of the service are those of its clusters",
        SERVICE,
        {
            "metadata.annotations": {"ray.io/ft-enabled": "true"},
            f"{CLUSTER}.gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
        },
        "metadata.annotations",
        "ray.io/ft-enabled is the older form of spec.rayClusterConfig.gcsFaultToleranceOptions: remove it",
    ),
    (
        "the cluster has no strategy of its own",
        SERVICE,
        {f"{CLUSTER}.upgradeStrategy": {"type": "Recreate"}},
        f"{CLUSTER}.upgradeStrategy.type",
        "a RayService makes this cluster, and looks after its changes itself: remove upgradeStrategy",
    ),
]


@pytest.mark.parametrize(("name", "edits", "path", "message"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_of_a_service_is_refused(name: str, edits: Mapping[str, object], path: str, message: str) -> None:
    (problem,) = [one for one in service_problems(service(edits, name)) if one.path == path]
    assert problem.message == message
    assert problem.reason == ("InvalidRayServiceMetadata" if path == "metadata.name" else "InvalidRayServiceSpec")


@pytest.mark.parametrize("text", ["10m", "1h30m", "90", "1.5h", "500ms", "+5m"])
def test_times_to_come_up_are_those_of_go_or_seconds(text: str) -> None:
    assert service_problems(service({"metadata.annotations": {"ray.io/initializing-timeout": text}})) == ()


CRON_ROWS: list[tuple[str, Mapping[str, object], str, str]] = [
    (
        "a name is short enough for names made from it",
        {"metadata.name": "a" * 37},
        "metadata.name",
        "it has 37 characters, and names of pods and Services are made from it: take 36 at most",
    ),
    (
        "a schedule is one",
        {"spec.schedule": "61 * * * *"},
        "spec.schedule",
        "'61' is not possible in the field minute: write 0 to 59",
    ),
    (
        "a time zone is known",
        {"spec.timeZone": "Europe/Atlantis"},
        "spec.timeZone",
        "Europe/Atlantis is no time zone that is known here: write one such as Europe/Berlin",
    ),
    (
        "a time zone is said once",
        {"spec.schedule": "TZ=UTC 0 * * * *"},
        "spec.schedule",
        "it names a time zone, and timeZone does so, too: keep timeZone",
    ),
    (
        "the job can be carried out",
        {"spec.jobTemplate.backoffLimit": -1},
        "spec.jobTemplate.backoffLimit",
        "it is less than none: take 0 or more",
    ),
]


@pytest.mark.parametrize(
    ("edits", "path", "message"), [row[1:] for row in CRON_ROWS], ids=[row[0] for row in CRON_ROWS]
)
def test_of_a_cronjob_is_refused(edits: Mapping[str, object], path: str, message: str) -> None:
    (problem,) = cronjob_problems(cron(edits))
    assert (problem.path, problem.message) == (path, message)


def test_the_name_of_a_cronjob_may_begin_with_a_digit() -> None:
    assert cronjob_problems(cron({"metadata.name": "1st"})) == ()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("service-")])
def test_samples_of_services_can_be_carried_out(name: str) -> None:
    assert service_problems(service({}, name)) == ()


def test_the_sample_of_a_cronjob_can_be_carried_out() -> None:
    assert cronjob_problems(cron({})) == ()
