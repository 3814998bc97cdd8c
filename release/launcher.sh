#!/bin/sh
# Runs the program beside it with a Python of this machine. The packages are in lib/, for all Pythons it names.
set -eu

self=$0
while [ -L "$self" ]; do # krew links to it
  link=$(readlink "$self")
  case $link in
    /*) self=$link ;;
    *) self=$(dirname "$self")/$link ;;
  esac
done
here=$(CDPATH='' cd -- "$(dirname -- "$self")" && pwd -P)

find_python() {
  for name in python3.14 python3.13 python3.12 python3; do
    found=$(command -v "$name") || continue
    if "$found" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 15))' 2>/dev/null; then
      printf '%s\n' "$found"
      return
    fi
  done
  echo "kubectl gpu needs Python 3.12, 3.13 or 3.14, and none is on PATH. Install one with the package manager" >&2
  echo "(apt install python3.13, dnf install python3.13, brew install python@3.13) and try again." >&2
  return 1
}

# An environment of its own, made once and without a network: programs that are started from here, such as those that
# sign in to clusters, must not find our packages. It goes when krew removes this folder.
if [ ! -x "$here/env/bin/python" ]; then
  python=$(find_python)
  new=$here/env.$$
  "$python" -m venv --without-pip "$new" || {
    echo "kubectl gpu could not make its environment in $here: that folder must be writable once." >&2
    exit 1
  }
  for packages in "$new"/lib/python3.*/site-packages; do
    printf '%s\n' "$here/lib" >"$packages/gpu-control-plane.pth"
  done
  rm -rf "$here/env"
  mv "$new" "$here/env"
fi

case $(basename "$0") in
  kubectl_complete-gpu) exec "$here/env/bin/python" -P -c 'from gpu_control_plane.cli.completion import main; main()' "$@" ;;
  *) exec "$here/env/bin/python" -P -m gpu_control_plane.cli "$@" ;;
esac
