"""From NVIDIA's operator to this one, and back: values of its chart, a plan, and the switch of operators.

`mapping` says where each Helm value goes, and `values` translates them. `installation` reads what is installed;
`label_changes`, `desired` and `daemonset_changes` compute labels, objects and what happens to DaemonSets by the same
functions that decide in production; `plan` puts it together. `operator_switch` is the only part that writes. Nothing
here runs in a controller.
"""
