"""A machine's root folder in which steps of Deckhouse run: real bash and core utilities, stand-ins for all that would
reach out of it (packages, the network, the kernel's modules)."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = ("bash", "cat", "cmp", "cp", "dirname", "grep", "mkdir", "mv", "rm", "touch")

PACKAGE_MANAGER = """#!/bin/bash
# Installs by putting there what the real packages would.
echo "${0##*/} $*" >>/log
if [ "$1 $2" = "module enable" ]; then
  mkdir -p /etc/dnf/modules.d
  printf '%s\\n' '[nvidia-driver]' "stream=${4#*:}" state=enabled >/etc/dnf/modules.d/nvidia-driver.module
fi
[ "$1" = install ] || exit 0
for package in "${@:3}"; do
  mkdir -p /var/lib/packages
  touch "/var/lib/packages/$package"
  if [ "$package" = nvidia-container-toolkit ]; then
    mkdir -p /etc/nvidia-container-runtime
    printf '%s\\n' '#accept-nvidia-visible-devices-envvar-when-unprivileged = true' '[nvidia-container-runtime]' \\
      'log-level = "info"' >/etc/nvidia-container-runtime/config.toml
    cp /bin/cat /usr/bin/nvidia-container-runtime
  fi
done
"""
STAND_INS = {
    "apt": PACKAGE_MANAGER,
    "dnf": PACKAGE_MANAGER,
    "dpkg": "#!/bin/bash\necho amd64\n",
    "dpkg-query": '#!/bin/bash\n[ -f "/var/lib/packages/${@: -1}" ] && echo "hold ok installed"\n',
    "rpm": '#!/bin/bash\n[ -f "/var/lib/packages/$2" ]\n',
    "uname": '#!/bin/bash\nif [ "$1" = -m ]; then cat /processor; else echo 6.8.0-31-generic; fi\n',
    "curl": '#!/bin/bash\necho "curl $*" >>/log\nwhile [ "$1" != --output ]; do shift; done\necho "a key" >"$2"\n',
    "modprobe": '#!/bin/bash\necho "modprobe $*" >>/log\n[ -f /loadable ] && mkdir -p /proc/driver/nvidia && '
    "touch /proc/driver/nvidia/version\n",
    "nvidia-ctk": """#!/bin/bash
# Rewrites the file whenever it is called, as the real one does.
echo "nvidia-ctk $*" >>/log
file=$4
case "$6" in
  nvidia-container-runtime.log-level=error) content=$(cat "$file"); echo "${content/info/error}" >"$file" ;;
  accept*=false)
    content=$(cat "$file")
    echo "${content/\\#accept-nvidia-visible-devices-envvar-when-unprivileged = true/${6/=/ = }}" >"$file" ;;
  *) exit 1 ;;
esac
""",
    "update-ca-certificates": "#!/bin/bash\necho update-ca-certificates >>/log\n",
}


@dataclass
class NodeRoot:
    """A root folder, and what happened in it."""

    root: Path
    said: list[str] = field(default_factory=list)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run one step; `said` is what it logged, which packages it installed and which flags it set."""
        (self.root / "step.sh").write_text(script.strip())  # dhctl loses the end of the last line
        (self.root / "log").write_text("")
        command = [*_enter(), "chroot", str(self.root), "/bin/bash", "--norc", "/bashible.sh", "/step.sh"]
        ran = subprocess.run(command, env={"PATH": _PATH}, capture_output=True, text=True, timeout=30, check=False)
        self.said = (self.root / "log").read_text().splitlines()
        (self.root / "step.sh").unlink()
        (self.root / "log").unlink()
        return ran

    def write(self, path: str, text: str = "") -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def snapshot(self) -> dict[str, tuple[int, int, bytes]]:
        """Every file with its mode, time of change and content, and every folder."""
        return {str(path.relative_to(self.root)): _state(path) for path in sorted(self.root.rglob("*"))}


def make_root(root: Path) -> NodeRoot:
    """A root folder with the programs that steps use."""
    for folder in ("bin", "usr/bin", "etc/apt/sources.list.d", "etc/yum.repos.d", "var/lib/bashible", "tmp", "dev"):
        (root / folder).mkdir(parents=True)
    for program in PROGRAMS:
        _copy_program(program, root)
    for name, text in STAND_INS.items():
        (root / "usr/bin" / name).write_text(text)
        (root / "usr/bin" / name).chmod(0o755)
    (root / "dev/null").write_text("")
    shutil.copy(HERE / "bashible.sh", root / "bashible.sh")
    node = NodeRoot(root)
    node.write("/processor", "x86_64\n")
    node.write("/etc/os-release", 'ID=rocky\nVERSION_ID="9.4"\n')
    return node


def skip_without_namespaces() -> None:
    """Skip where no other root can be entered; in CI that is a failure."""
    entered = (
        shutil.which("chroot")
        and subprocess.run([*_enter(), "chroot", "/", "true"], capture_output=True, check=False).returncode == 0
    )
    if not entered:
        reason = "no chroot: run as root, or on a Linux that lets users make namespaces"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _enter() -> list[str]:
    return [] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--"]


def _copy_program(name: str, root: Path) -> None:
    path = shutil.which(name, path=_PATH)
    assert path is not None, name
    shutil.copy(path, root / "bin" / name)
    needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout  # noqa: S607
    for library in re.findall(r"(/\S+) \(0x", needed):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def _state(path: Path) -> tuple[int, int, bytes]:
    if path.is_dir():
        return path.stat().st_mode, 0, b""
    # What a redirection to /dev/null leaves there is nothing that a node keeps.
    content = b"" if path.parts[-2:] == ("dev", "null") else path.read_bytes()
    time = 0 if path.parts[-2:] == ("dev", "null") else path.stat().st_mtime_ns
    return path.stat().st_mode, time, content
