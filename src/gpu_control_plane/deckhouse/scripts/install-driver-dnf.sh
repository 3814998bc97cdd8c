# The NVIDIA driver and the container toolkit, from packages. Runs again every few hours and does nothing then.
nvidia_driver=@DRIVER@
nvidia_packages=(@PACKAGES@)
nvidia_repository=@REPOSITORY@
nvidia_stream=@STREAM@
nvidia_pending=/var/lib/bashible/nvidia-driver-pending

_nvidia_file_changed() {
  # A repository that dnf has not read yet: the package lists are out of date.
  case "$1" in /etc/yum.repos.d/*) bb-flag-unset dnf-updated ;; esac
}
bb-event-on 'bb-sync-file-changed' '_nvidia_file_changed'

# shellcheck source=/dev/null
nvidia_release=$(. /etc/os-release && echo "rhel${VERSION_ID%%.*}")
# Servers with ARM processors have a folder of another name there, and newer releases a key of their own.
nvidia_processor=$(uname -m)
if [ "$nvidia_processor" = aarch64 ]; then nvidia_processor=sbsa; fi
nvidia_key=CDF6BA43
case "$nvidia_release" in rhel8 | rhel9) nvidia_key=D42D0685 ;; esac
nvidia_cuda=https://developer.download.nvidia.com/compute/cuda/repos/$nvidia_release/$nvidia_processor
bb-sync-file /etc/yum.repos.d/nvidia-container-toolkit.repo - <<EOF
[nvidia-container-toolkit]
name=NVIDIA container toolkit
baseurl=$nvidia_repository/stable/rpm/\$basearch
gpgkey=$nvidia_repository/gpgkey
gpgcheck=0
repo_gpgcheck=1
EOF
bb-sync-file /etc/yum.repos.d/nvidia-cuda.repo - <<EOF
[nvidia-cuda]
name=NVIDIA drivers and CUDA
baseurl=$nvidia_cuda
gpgkey=$nvidia_cuda/$nvidia_key.pub
gpgcheck=1
EOF

# Releases 8 and 9 have drivers in streams of a module, and what is in a stream that is not enabled cannot be installed.
case "$nvidia_stream:$nvidia_release" in
  ?*:rhel8 | ?*:rhel9)
    if ! grep -qsx "stream=$nvidia_stream" /etc/dnf/modules.d/nvidia-driver.module; then
      bb-set-proxy
      dnf module enable -y "nvidia-driver:$nvidia_stream"
      bb-unset-proxy
    fi
    ;;
esac

# Another driver under running pods breaks every program that starts on a card: Deckhouse has to approve it first. The file
# remembers, should this run be cut short, that the driver has not been loaded yet.
if ! rpm -q "$nvidia_driver" >/dev/null 2>&1; then
  if [ -e /proc/driver/nvidia/version ]; then bb-deckhouse-get-disruptive-update-approval; fi
  mkdir -p "$(dirname "$nvidia_pending")"
  touch "$nvidia_pending"
fi
bb-dnf-install "kernel-devel-$(uname -r)" "$nvidia_driver" "${nvidia_packages[@]}"

@FINISH@
