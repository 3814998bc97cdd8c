# The NVIDIA driver and the container toolkit, from packages. Runs again every few hours and does nothing then.
nvidia_driver=@DRIVER@
nvidia_packages=(@PACKAGES@)
nvidia_repository=@REPOSITORY@
nvidia_key=/etc/apt/keyrings/nvidia-container-toolkit.asc
nvidia_list=/etc/apt/sources.list.d/nvidia-container-toolkit.list
nvidia_pending=/var/lib/bashible/nvidia-driver-pending

_nvidia_file_changed() {
  # A repository that apt has not read yet: the package lists are out of date.
  if [ "$1" = "$nvidia_list" ]; then bb-flag-unset apt-updated; fi
}
bb-event-on 'bb-sync-file-changed' '_nvidia_file_changed'

mkdir -p /etc/apt/keyrings
if [ ! -s "$nvidia_key" ]; then
  bb-set-proxy
  curl -fsSL --retry 5 --output "$nvidia_key.new" "$nvidia_repository/gpgkey"
  bb-unset-proxy
  mv "$nvidia_key.new" "$nvidia_key"
fi
bb-sync-file "$nvidia_list" - <<EOF
deb [signed-by=$nvidia_key] $nvidia_repository/stable/deb/$(dpkg --print-architecture) /
EOF

# Another driver under running pods breaks every program that starts on a card: Deckhouse has to approve it first. The file
# remembers, should this run be cut short, that the driver has not been loaded yet.
if ! dpkg-query -W -f '${Status}' "$nvidia_driver" 2>/dev/null | grep -q ' ok installed'; then
  if [ -e /proc/driver/nvidia/version ]; then bb-deckhouse-get-disruptive-update-approval; fi
  mkdir -p "$(dirname "$nvidia_pending")"
  touch "$nvidia_pending"
fi
bb-apt-install "linux-headers-$(uname -r)" "$nvidia_driver" "${nvidia_packages[@]}"

@FINISH@
