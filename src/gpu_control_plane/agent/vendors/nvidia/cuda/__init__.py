"""CUDA programs of their own processes: the kernel check, and the burn-in."""
