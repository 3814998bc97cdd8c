"""The roles that the chart brings for people: bound to nobody unless values say so."""

from helm.chart import Helm
from helm.rules import rules_of

READING = {"get", "list", "watch"}


def verbs(helm: Helm, role: str) -> dict[str, set[str]]:
    """What a role allows, by resource."""
    found: dict[str, set[str]] = {}
    for rule in rules_of(helm.objects({}).one("ClusterRole", role)):
        for resource in rule.resources:
            found.setdefault(resource, set()).update(rule.verbs)
    return found


def test_who_uses_pools_may_read_them_and_nothing_else(helm: Helm) -> None:
    assert verbs(helm, "gpu-pool-reader") == {"gpupools": READING}


def test_a_viewer_changes_nothing_and_reads_no_pods(helm: Helm) -> None:
    allowed = verbs(helm, "gpu-viewer")
    assert {"gpudevices", "gpunodestates", "gpupools", "nodes"} <= allowed.keys()
    assert "pods" not in allowed
    assert all(each == READING for each in allowed.values())


def test_an_admin_writes_what_people_decide_and_not_what_controllers_report(helm: Helm) -> None:
    allowed = verbs(helm, "gpu-admin")
    assert allowed["gpudevices"] == {"patch", "update"}
    assert "gpunodestates" not in allowed
    assert not any("/status" in resource for resource in allowed)


def test_only_the_groups_named_in_values_may_read_pools(helm: Helm) -> None:
    ours = {"gpu-pool-reader", "gpu-viewer", "gpu-admin"}
    bound = {each["roleRef"]["name"] for each in helm.objects({}).of("ClusterRoleBinding")}
    assert not bound & ours
    objects = helm.objects({"access": {"poolReaders": ["system:authenticated"]}})
    (binding,) = [each for each in objects.of("ClusterRoleBinding") if each["roleRef"]["name"] in ours]
    assert binding["roleRef"]["name"] == "gpu-pool-reader"
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]
