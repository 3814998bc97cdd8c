# NVIDIA's runtime for containerd 2, and CDI, by which the GPU control plane hands out cards. containerd's own file imports
# this one and does not change with it, so it is here that containerd is restarted.
_nvidia_containerd_changed() { bb-flag-set containerd-need-restart; }
bb-event-on 'nvidia-containerd-changed' '_nvidia_containerd_changed'

if [ ! -x /usr/bin/nvidia-container-runtime ]; then
  bb-log-error "There is no /usr/bin/nvidia-container-runtime: containerd is left as it is"
  exit 1
fi
# As Deckhouse has it for runc on this node.
nvidia_systemd_cgroup=true
if grep -qs 'SystemdCgroup = false' /etc/containerd/deckhouse.toml; then nvidia_systemd_cgroup=false; fi

mkdir -p /etc/containerd/conf2.d
bb-sync-file /etc/containerd/conf2.d/nvidia_gpu.toml - nvidia-containerd-changed <<EOF
version = 3
[plugins]
  [plugins."io.containerd.cri.v1.runtime"]
    enable_cdi = true
    cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
    [plugins."io.containerd.cri.v1.runtime".containerd]
@DEFAULT@
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes]
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"
          privileged_without_host_devices = false
          [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
            SystemdCgroup = $nvidia_systemd_cgroup
EOF
