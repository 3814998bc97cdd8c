"""From NVIDIA's operator to this one: values of its chart, and a plan.

`mapping` says where each Helm value goes, and `values` translates them. `installation` reads what is installed;
`label_changes`, `desired` and `daemonset_changes` compute labels, objects and what happens to DaemonSets by the same
functions that decide in production; `plan` puts it together. The switch itself is in the package
`gpu_control_plane.migration`. Nothing here writes, or runs in a controller.
"""
