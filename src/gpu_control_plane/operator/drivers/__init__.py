"""NVIDIADrivers: which driver goes to which nodes, where one for all is not enough."""
