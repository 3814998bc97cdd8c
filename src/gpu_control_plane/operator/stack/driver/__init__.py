"""The pod that carries the driver, whether a ClusterPolicy or an NVIDIADriver asks for it.

Both are read into a `DriverWish` once; everything after that is the same for both.

Fabric Manager has no pod of its own: the driver's image brings it and starts it where the PCI bus shows NVSwitches.
What it needs from us is a folder of the host for its socket (`/run/nvidia-fabricmanager`, from where CDI hands it to
containers), somewhere to log, and a start-up probe that waits until the daemons of the driver say that they are ready.
How it divides a fabric is a variable of the driver's environment, which people set like any other.
"""
