"""The way from NVIDIA's operator to this one, and back: values of its chart, a plan, and the change of hands.

`mapping` says where each value goes and `values` brings it there. `installation` reads what runs; `relabelled`,
`desired` and `fates` foresee labels, objects and what becomes of DaemonSets, by the code that decides in production;
`plan` says it. `handover` is the only part that writes. Nothing here runs in a controller.
"""
