nvidia_runtime_config=/etc/nvidia-container-runtime/config.toml
if ! grep -Eqs '^ *log-level = "error"$' "$nvidia_runtime_config"; then
  nvidia-ctk config --in-place --config "$nvidia_runtime_config" --set nvidia-container-runtime.log-level=error
fi
# An image's own NVIDIA_VISIBLE_DEVICES=all must not open cards that the pod was not given.
if ! grep -Eqs '^accept-nvidia-visible-devices-envvar-when-unprivileged = false$' "$nvidia_runtime_config"; then
  nvidia-ctk config --in-place --config "$nvidia_runtime_config" \
    --set accept-nvidia-visible-devices-envvar-when-unprivileged=false
fi

# A driver that was just installed is loaded by a reboot if it cannot be now: another one may still have the cards. Only
# then, since a driver that never loads would have the node reboot for ever.
if [ -e "$nvidia_pending" ]; then
  if [ -e /proc/driver/nvidia/version ] || ! modprobe nvidia; then
    bb-deckhouse-get-disruptive-update-approval
    bb-flag-set reboot
  fi
  rm "$nvidia_pending"
elif [ ! -e /proc/driver/nvidia/version ]; then
  bb-log-error "The driver $nvidia_driver is installed and not loaded: see dmesg (Secure Boot, kernel headers, no card?)"
fi
