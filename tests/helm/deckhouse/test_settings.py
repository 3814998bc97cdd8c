"""Every setting has an effect, an explanation in two languages, and the chart's default unless there is a reason."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from release.module import CHART, MODULE

from gpu_control_plane.deckhouse.module_settings import wrong_settings
from gpu_control_plane.kube.written_yaml import overlaid
from helm.chart import Refused
from helm.deckhouse.module import SETTINGS_SCHEMA, Module, at, defaults, leaves

LEAVES = dict(leaves(SETTINGS_SCHEMA))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
OTHER_DEFAULTS = {
    ("bootstrap", "migStrategy"): "Deckhouse writes choices in camel case",
    ("discovery", "enabled"): "Node Feature Discovery is not a part of every edition",
    ("operator", "enabled"): "NodeGroups bring drivers",
    ("logLevel",): "Deckhouse writes choices in camel case",
}
BASES: dict[tuple[str, ...], dict[str, Any]] = {
    ("bootstrap", "gfd", "defaultConfig"): {"bootstrap": {"gfd": {"enabled": True, "config": "gfd"}}},
    **{("bootstrap", name): {"bootstrap": {name: {"enabled": True}}} for name in ("gfd", "dcgm", "dcgmExporter")},
    ("bootstrap", "migStrategy"): {"bootstrap": {"gfd": {"enabled": True}}},
    ("bootstrap", "runtimeClassName"): {"bootstrap": {"gfd": {"enabled": True}}},
    ("bootstrap", "runtimeClass"): {"bootstrap": {"gfd": {"enabled": True}}},
    ("agent", "burnIn", "seconds"): {"agent": {"burnIn": {"enabled": True}}},
    ("ray",): {"ray": {"enabled": True}},
    ("console", "allowedUserGroups"): {"console": {"enabled": True}},
    ("console", "tlsSecretName"): {"console": {"enabled": True}},
}
"""What has to be on for settings below a path to mean something."""


@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_a_setting_changes_what_is_rendered(module: Module, path: tuple[str, ...]) -> None:
    base = next((each for start, each in BASES.items() if path[: len(start)] == start and path[-1] != "enabled"), {})
    example = LEAVES[path]["x-examples"][0]
    assert example != LEAVES[path].get("default")
    assert module.render(overlaid(base, at(path, example))) != module.render(base)


@pytest.mark.parametrize("path", LEAVES, ids=".".join)
def test_a_bring_up_may_have_it(path: tuple[str, ...]) -> None:
    examples = LEAVES[path]["x-examples"]
    assert [wrong_settings(at(path, example)) for example in examples] == [[] for _ in examples]


def test_settings_have_the_charts_defaults_but_for_a_reason() -> None:
    unlike = set()
    for path, schema in LEAVES.items():
        value: Any = VALUES
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and value != schema.get("default"):
            unlike.add(path)
    assert unlike == set(OTHER_DEFAULTS)


def test_high_availability_is_the_clusters_unless_it_is_set() -> None:
    assert "default" not in SETTINGS_SCHEMA["properties"]["highAvailability"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bootstrap": {"gdf": {}}}, r"additional properties 'gdf' not allowed"),
        ({"logLevel": "info"}, r"value must be one of 'Debug', 'Info', 'Warn', 'Error'"),
        ({"managedNodes": {"labelKey": "not a key"}}, r"'not a key' does not match pattern"),
        ({"highAvailability": "yes"}, r"got string, want boolean"),
        ({"bootstrap": {"dcgmExporter": {"port": 80}}}, r"minimum: got 80, want 1,?025"),
        ({"bootstrap": {"gfd": {"sleepInterval": "often"}}}, r"'often' does not match pattern"),
    ],
)
def test_wrong_settings_are_refused(module: Module, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        module.render(settings)


def test_every_setting_is_explained_in_both_languages() -> None:
    russian = yaml.safe_load((MODULE / "openapi/doc-ru-config-values.yaml").read_text())
    english = {path for path, _text in _texts(SETTINGS_SCHEMA)}
    assert english == {path for path, _text in _texts(russian)}


def test_defaults_are_what_deckhouse_would_fill_in() -> None:
    assert defaults(SETTINGS_SCHEMA)["bootstrap"]["gfd"] == {
        "enabled": False,
        "sleepInterval": "60s",
        "featuresDir": "/etc/kubernetes/node-feature-discovery/features.d",
        "hostSysPath": "/sys",
        "failOnInitError": True,
        "nodeFeatureAPI": False,
        "config": "",
        "defaultConfig": "",
    }


def _texts(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if path:
        assert schema.get("description", "").strip(), f"{'.'.join(path)} is not explained"
        yield path, schema["description"]
    for name, each in (schema.get("items", {}) | schema).get("properties", {}).items():
        yield from _texts(each, (*path, name))
