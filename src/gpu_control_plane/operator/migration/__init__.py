"""The way from NVIDIA's operator to this one, and back: values of its chart, a plan, and the change of hands.

`mapping` says where each value goes and `values` brings it there; `installation` reads what runs and `plan` says what
would change; `handover` is the only part that writes. Nothing here runs in a controller.
"""
