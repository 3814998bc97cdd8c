"""`python -m gpu_control_plane.cli`, for when the entry point is not on PATH."""

from gpu_control_plane.cli.main import main

main()
