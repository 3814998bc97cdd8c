"""The MIG manager, and the layouts it comes with: each must fit into the cards it is for."""

import re
from typing import Any

import pytest
import yaml

from gpu_control_plane.operator.stack.config_maps import CONFIG_DIGEST
from gpu_control_plane.operator.stack.manifest import assets
from gpu_control_plane.operator.stack.operands.mig_manager import STATE
from unit.operator.stack.container_builders import CDI_OFF, daemonset, env, mounts, objects, render_input

PROFILE = re.compile(r"^(?P<slices>\d)g\.(?P<memory>\d+)gb(\+me|\+gfx|\+me\.all|-me)?$")


def manager(**section: Any) -> dict[str, Any]:
    return {"migManager": section}


def config_maps(**sections: Any) -> set[str]:
    return {
        held["metadata"]["name"] for held in objects(STATE, render_input(**sections)) if held["kind"] == "ConfigMap"
    }


def test_stock_values() -> None:
    made = daemonset(STATE, render_input())
    assert (made.pod["hostPID"], made.pod["hostIPC"]) == (True, True)
    assert env(made)["GPU_CLIENTS_FILE"] == "/gpu-clients/clients.yaml"
    assert mounts(made) == {
        "/entrypoint": "nvidia-mig-manager-entrypoint",
        "/mig-parted-config": "default-mig-parted-config",
        "/gpu-clients": "default-gpu-clients",
        "/run/nvidia/validations": "/run/nvidia/validations",
        "/sys": "/sys",
        "/host": "/",
        "/driver-root": "/run/nvidia/driver",
        "/var/run/cdi": "/var/run/cdi",
    }
    assert config_maps() == {"default-mig-parted-config", "default-gpu-clients", "nvidia-mig-manager-entrypoint"}


@pytest.mark.parametrize("name", ["", "default-mig-parted-config"])
def test_built_in_layouts_are_only_a_fallback(name: str) -> None:
    made = daemonset(STATE, render_input(**manager(config={"name": name})))
    assert env(made)["DEFAULT_CONFIG_FILE"] == "/mig-parted-config/config-default.yaml"
    assert "CONFIG_FILE" not in env(made)
    items = made.volume("mig-parted-config")["configMap"]["items"]
    assert items == [{"key": "config.yaml", "path": "config-default.yaml"}]


def test_layouts_of_people_replace_ours() -> None:
    sections = manager(config={"name": "layouts"})
    made = daemonset(STATE, render_input(**sections))
    assert env(made)["CONFIG_FILE"] == "/mig-parted-config/config.yaml"
    assert "DEFAULT_CONFIG_FILE" not in env(made)
    assert made.volume("mig-parted-config") == {"name": "mig-parted-config", "configMap": {"name": "layouts"}}
    assert "default-mig-parted-config" not in config_maps(**sections)


def test_clients_of_people_replace_ours() -> None:
    sections = manager(gpuClientsConfig={"name": "clients"})
    assert mounts(daemonset(STATE, render_input(**sections)))["/gpu-clients"] == "clients"
    assert "default-gpu-clients" not in config_maps(**sections)


@pytest.mark.parametrize("name", ["layouts", "clients"])
def test_an_edit_of_either_is_a_new_pod(name: str) -> None:
    sections = manager(config={"name": "layouts"}, gpuClientsConfig={"name": "clients"})

    def digest(data: str) -> str:
        held = {"layouts": {"config.yaml": ""}, "clients": {"clients.yaml": ""}, name: {"config.yaml": data}}
        made = daemonset(STATE, render_input(config_maps=held, **sections))
        return str(made.template["metadata"]["annotations"][CONFIG_DIGEST])

    assert digest("a") == digest("a") != digest("b")


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({}, {"CDI_ENABLED": "true", "NVIDIA_CDI_HOOK_PATH": "/usr/local/nvidia/toolkit/nvidia-cdi-hook"}),
        ({"toolkit": {"enabled": False}}, {"CDI_ENABLED": "true"}),
        (CDI_OFF, {}),
    ],
)
def test_it_writes_cdi_files_where_there_is_cdi(sections: dict[str, Any], told: dict[str, str]) -> None:
    made = env(daemonset(STATE, render_input(**sections)))
    assert {name: made[name] for name in ("CDI_ENABLED", "NVIDIA_CDI_HOOK_PATH") if name in made} == told


def _data(name: str, key: str) -> Any:
    (found,) = [held for held in assets(STATE.name) if held["metadata"]["name"] == name]
    return yaml.safe_load(found["data"][key])


LAYOUTS: dict[str, list[dict[str, Any]]] = _data("default-mig-parted-config", "config.yaml")["mig-configs"]
DIVIDED = {name: entries for name, entries in LAYOUTS.items() if name not in {"all-disabled", "all-enabled"}}


def test_mig_is_switched_off_and_on() -> None:
    assert LAYOUTS["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    assert LAYOUTS["all-enabled"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]


@pytest.mark.parametrize(
    "name",
    [
        "all-1g.5gb",
        "all-7g.40gb",
        "all-1g.10gb",
        "all-7g.80gb",
        "all-1g.6gb",
        "all-4g.24gb",
        "all-1g.12gb",
        "all-7g.96gb",
        "all-1g.18gb",
        "all-7g.141gb",
        "all-1g.23gb",
        "all-7g.180gb",
        "all-2g.48gb",
        "all-1g.24gb.gfx",
        "all-balanced",
    ],
)
def test_known_names_are_there(name: str) -> None:
    assert name in LAYOUTS


@pytest.mark.parametrize("name", DIVIDED)
def test_a_layout_says_what_its_name_says(name: str) -> None:
    for entry in DIVIDED[name]:
        assert set(entry) <= {"device-filter", "devices", "mig-enabled", "mig-devices"}
        assert (entry["devices"], entry["mig-enabled"]) == ("all", True)
        assert all(PROFILE.match(profile) and count > 0 for profile, count in entry["mig-devices"].items())
        if name != "all-balanced":
            assert [f"all-{profile.replace('+', '.')}" for profile in entry["mig-devices"]] == [name]


@pytest.mark.parametrize("name", DIVIDED)
def test_a_card_is_named_once_at_most_and_either_all_entries_name_cards_or_none(name: str) -> None:
    entries = DIVIDED[name]
    named = [device for entry in entries for device in entry.get("device-filter", ())]
    assert len(named) == len(set(named))
    assert all(re.fullmatch(r"0x[0-9A-F]{4}10DE", device) for device in named)
    assert len(entries) == 1 or all("device-filter" in entry for entry in entries)


@pytest.mark.parametrize("name", DIVIDED)
def test_no_layout_asks_for_more_than_a_card_has(name: str) -> None:
    """Seven slices, or four on cards whose largest instance has four; of memory, eight or four parts."""
    for entry in DIVIDED[name]:
        wanted = [(PROFILE.match(profile), count) for profile, count in entry["mig-devices"].items()]
        slices = sum(int(match["slices"]) * count for match, count in wanted if match)
        assert slices <= 7
        # An instance of three slices takes half of the memory.
        parts = sum(
            {3: 4, 7: 8}.get(int(match["slices"]), int(match["slices"])) * count for match, count in wanted if match
        )
        assert parts <= 8
        most = [count for profile, count in entry["mig-devices"].items() if profile.endswith(("+me", "+me.all"))]
        assert sum(most) <= 1


SEVEN_SLICES = (7, 4, 3, 2, 1, 1)
FITS = [
    ("20B0", ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), SEVEN_SLICES),
    ("20B2", ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), SEVEN_SLICES),
    ("2330", ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"), SEVEN_SLICES),
    ("2342", ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"), SEVEN_SLICES),
    ("2335", ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"), SEVEN_SLICES),
    ("2901", ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"), SEVEN_SLICES),
    ("20B7", ("1g.6gb", "2g.12gb", "4g.24gb"), (4, 2, 1)),
    ("2BB5", ("1g.24gb", "2g.48gb", "4g.96gb"), (4, 2, 1)),
]


@pytest.mark.parametrize(("device", "profiles", "counts"), FITS, ids=[row[0] for row in FITS])
def test_each_card_is_divided_into_as_many_instances_as_fit(
    device: str, profiles: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    """What NVIDIA documents of these cards, and what was measured on an H200."""
    for profile, count in zip(profiles, counts, strict=True):
        entries = LAYOUTS[f"all-{profile}"]
        (entry,) = [held for held in entries if f"0x{device}10DE" in held.get("device-filter", [f"0x{device}10DE"])]
        assert entry["mig-devices"] == {profile: count}


def test_the_same_name_fits_four_times_into_a_small_card_and_seven_times_into_a_big_one() -> None:
    counts = {
        device: entry["mig-devices"]["1g.10gb"] for entry in LAYOUTS["all-1g.10gb"] for device in entry["device-filter"]
    }
    assert counts["0x20B010DE"] == 4
    assert counts["0x20B210DE"] == counts["0x233010DE"] == 7


def test_balanced_knows_every_card_and_uses_only_layouts_that_exist() -> None:
    cards = [device for entry in LAYOUTS["all-balanced"] for device in entry["device-filter"]]
    assert {"0x20B010DE", "0x20B210DE", "0x20B710DE", "0x233010DE", "0x233510DE", "0x290110DE", "0x2BB510DE"} <= {
        *cards
    }
    for entry in LAYOUTS["all-balanced"]:
        assert all(f"all-{profile}" in LAYOUTS for profile in entry["mig-devices"])


def test_programs_of_the_host_are_systemd_units() -> None:
    found = _data("default-gpu-clients", "clients.yaml")
    assert found["version"] == "v1"
    assert all(unit.endswith(".service") for unit in found["systemd-services"])
    assert len(set(found["systemd-services"])) == len(found["systemd-services"]) > 0
