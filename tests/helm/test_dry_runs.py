"""The API server itself takes what the chart renders, by a dry run of every object."""

import pytest
import yaml

from helm.chart import VALUE_SETS, Helm
from helm.installed import Installed


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_the_api_server_takes_every_render(api_server: Installed, helm: Helm, values: dict[str, object]) -> None:
    ask = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--field-manager=test", "-f", "-")
    rendered = helm.objects(values).all
    answer = api_server.kubectl(*ask, given=yaml.safe_dump_all(rendered))
    assert len(answer.splitlines()) == len(rendered)


def test_all_but_the_agent_pass_the_restricted_standard(api_server: Installed, helm: Helm) -> None:
    """Judged by the API server's own Pod Security admission."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "restricted", "labels": labels}})
    for component, pod in helm.objects(VALUE_SETS["without-nfd"]).pods():
        spec = {**pod["spec"], "serviceAccountName": "default", "priorityClassName": ""}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": component}, "spec": spec}
        given = yaml.safe_dump(manifest)
        ask = ("-n", "restricted", "create", "--dry-run=server", "-f", "-")
        if component == "agent":
            with pytest.raises(AssertionError, match="violates PodSecurity"):
                api_server.kubectl(*ask, given=given)
        else:
            api_server.kubectl(*ask, given=given)
