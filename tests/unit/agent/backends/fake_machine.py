"""Made-up machines: the parts of /sys, /proc and /dev that backends read."""

import shutil
from pathlib import Path

from gpu_control_plane.agent.backends.sysfs import Sysfs

BOOT = "5d1f0a52-9c1c-4f5e-8c0e-3a1b2c3d4e5f"


class FakeMachine:
    """One machine under a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc, self.dev = root / "sys", root / "proc", root / "dev"
        for folder in (self.sys / "bus/pci/devices", self.proc / "driver/nvidia-caps", self.dev):
            folder.mkdir(parents=True)
        self._write(self.proc / "sys/kernel/random/boot_id", BOOT)

    @property
    def host(self) -> Sysfs:
        return Sysfs(self.sys, self.proc)

    def plug(
        self, address: str, *, vendor: str = "10de", device: str = "2335", class_: str = "0302", numa: str = "0"
    ) -> None:
        """As Linux shows it: a folder under its host bridge, and a link to it among all devices."""
        place = self.sys / f"devices/pci{address[:7]}/{address[:7]}:01.0/{address}"
        for name, value in {"vendor": vendor, "device": device, "class": f"{class_}00"}.items():
            self._write(place / name, f"0x{value}")
        self._write(place / "numa_node", numa)
        (self.sys / "bus/pci/devices" / address).symlink_to(place)

    def split(self, address: str, *functions: str) -> None:
        """SR-IOV: virtual functions beside the card, each with a link to it, as on a host that shares it among VMs."""
        for function in functions:
            self.plug(function)
            (self.sys / "bus/pci/devices" / function / "physfn").symlink_to(f"../{address}")

    def hide_bus(self) -> None:
        """As in a container without /sys."""
        shutil.rmtree(self.sys)

    def unplug(self, address: str) -> None:
        (self.sys / "bus/pci/devices" / address).unlink()

    def give_screen(self, address: str, *names: str) -> None:
        for name in names:
            (self.sys / "bus/pci/devices" / address / "drm" / name).mkdir(parents=True)
            self.make_files(f"dri/{name}")

    def make_files(self, *names: str) -> None:
        for name in names:
            self._write(self.dev / name, "")

    def list_capabilities(self, *lines: str) -> None:
        self._write(self.proc / "driver/nvidia-caps/mig-minors", "".join(f"{line}\n" for line in lines))

    def _write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
