"""The pod that brings the driver, whether a ClusterPolicy or an NVIDIADriver asks for it.

Both are read into a `DriverSpec` once; everything after that is the same for both.

Fabric Manager has no pod of its own: the driver's image contains it and starts it where there are NVSwitches on the PCI
bus. It needs a host folder for its socket (`/run/nvidia-fabricmanager`, from where CDI gives it to containers), a
folder for its log, and a start-up probe that waits until the driver's daemons report that they are ready. How it
partitions the fabric is a variable of the driver's environment, which people set like any other.
"""
