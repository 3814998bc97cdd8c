"""NVIDIADrivers: different drivers for different groups of nodes."""
