# Stand-ins for what Deckhouse gives to a step: the functions bb-*, behaving as its documentation says. State that
# outlives a run is under /var/lib/bashible; what a test asks about is written to /log.
BB_DIR=/var/lib/bashible
mkdir -p "$BB_DIR/flag" "$BB_DIR/events"
rm -f "$BB_DIR/events/"* "$BB_DIR/flag/"*
declare -A BB_HANDLERS
BB_DELAYED=()

bb-log-info() { echo "info: $*" >>/log; }
bb-log-warning() { echo "warning: $*" >>/log; }
bb-log-error() { echo "error: $*" >>/log; }
bb-set-proxy() { :; }
bb-unset-proxy() { :; }
bb-flag?() { [[ -f "$BB_DIR/flag/$1" ]]; }
bb-flag-set() { echo "flag: $1" >>/log; touch "$BB_DIR/flag/$1"; }
bb-flag-unset() { rm -f "$BB_DIR/flag/$1"; }
bb-deckhouse-get-disruptive-update-approval() { echo "approval" >>/log; }

bb-event-on() { BB_HANDLERS["$1"]+="$2 "; }
bb-event-fire() {
  local event="$1" handler
  shift
  for handler in ${BB_HANDLERS["$event"]-}; do "$handler" "$@"; done
}
bb-event-delay() { [[ $# -eq 0 ]] || BB_DELAYED+=("$1"); }

bb-sync-file() {
  local target="$1" source="$2" changed=false
  shift 2
  if [[ "$source" == - ]]; then
    source="$BB_DIR/events/stdin"
    cat >"$source"
  fi
  # As there: the folder must exist, and a file is written only where it differs.
  if [[ ! -f "$target" ]]; then touch "$target"; changed=true; fi
  if ! cmp -s "$source" "$target"; then cp -f "$source" "$target"; changed=true; fi
  rm -f "$BB_DIR/events/stdin"
  if $changed; then
    bb-event-fire bb-sync-file-changed "$target"
    bb-event-delay "$@"
  fi
}

_bb-install() {
  local manager="$1" package missing=()
  shift
  for package in "$@"; do [[ -f "/var/lib/packages/$package" ]] || missing+=("$package"); done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  bb-flag? "$manager-updated" || { "$manager" update; bb-flag-set "$manager-updated"; }
  "$manager" install -y "${missing[@]}"
  bb-event-fire bb-package-installed "${missing[@]}"
}
bb-apt-install() { _bb-install apt "$@"; }
bb-dnf-install() { _bb-install dnf "$@"; }

_bb-delayed() {
  local event
  for event in "${BB_DELAYED[@]}"; do bb-event-fire "$event"; done
  rm -rf "$BB_DIR/events" "$BB_DIR/flag"
}

set -Eeo pipefail
# shellcheck source=/dev/null
source "$1"
_bb-delayed
