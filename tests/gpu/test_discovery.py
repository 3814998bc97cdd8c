"""What the agent finds and publishes is what the driver's own tool says."""

from gpu.card_env import CardEnv
from gpu.record import Record
from gpu.smi import Smi
from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.identity import canonical_pci_address

_FIELDS = ("name", "uuid", "pci.bus_id", "pci.device_id", "memory.total", "compute_cap", "mig.mode.current")


def test_the_published_card_is_the_one_nvidia_smi_shows(env: CardEnv, smi: Smi, record: Record) -> None:
    hardware = env.published()["status"]["hardware"]
    said = smi.query(*_FIELDS)
    pairs = {
        "product": (hardware["product"], said["name"]),
        "UUID": (hardware["uuid"], said["uuid"]),
        "PCI address": (hardware["pci"]["address"], canonical_pci_address(said["pci.bus_id"])),
        "PCI device and vendor": (
            f"0x{hardware['pci']['device']}{hardware['pci']['vendor']}".lower(),
            said["pci.device_id"].lower(),
        ),
        "memory, MiB": (str(hardware["memoryMiB"]), said["memory.total"]),
        "compute capability": (hardware["computeCapability"], said["compute_cap"]),
        "MIG mode": ("Enabled" if hardware["mig"]["enabled"] else "Disabled", said["mig.mode.current"]),
    }
    for what, (ours, theirs) in pairs.items():
        record.compare(what, ours, theirs)
    assert {what: ours for what, (ours, _) in pairs.items()} == {what: theirs for what, (_, theirs) in pairs.items()}


def test_the_published_driver_is_the_one_nvidia_smi_shows(env: CardEnv, smi: Smi, record: Record) -> None:
    driver = env.state()["status"]["driver"]
    version, cuda = smi.query("driver_version")["driver_version"], smi.cuda_version()
    record.compare("driver", driver["version"], version)
    record.compare("CUDA version", driver["cudaVersion"], cuda)
    assert (driver["version"], driver["cudaVersion"], driver["source"]) == (version, cuda, "Host")


def test_mig_profiles_are_those_of_the_driver(card: Hardware, smi: Smi, record: Record) -> None:
    assert card.mig is not None
    ours = {profile.name: profile for profile in card.mig.profiles}
    theirs = {profile.name: profile for profile in smi.profiles()}
    assert theirs, "nvidia-smi lists the profiles of a card that is not cut, too"
    for name, profile in ours.items():
        other = theirs.get(name)
        record.compare(
            f"MIG {name}",
            f"{profile.count} of {profile.memory_mib} MiB at {list(profile.starts)}:{profile.slices}",
            f"{other.count} of {other.gib} GiB at {list(other.starts)}:{other.size}" if other else "absent",
        )
    assert ours.keys() == theirs.keys()
    for name, other in theirs.items():
        profile = ours[name]
        assert (profile.count, profile.starts, profile.slices) == (other.count, other.starts, other.size), name
        assert abs(profile.memory_mib / 1024 - other.gib) < 0.26, name


def test_the_bus_shows_no_card_that_the_driver_does_not(backend: Backend, env: CardEnv, smi: Smi) -> None:
    listed = smi.ask("--query-gpu=uuid", "--format=csv,noheader").split()
    assert [card.uuid for card in backend.cards()] == listed
    assert backend.facts().bus_cards == len(listed)
    assert env.conditions()["InventoryComplete"] == "True"
