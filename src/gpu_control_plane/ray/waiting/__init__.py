"""What of Ray waits, since when and what for: for metrics, for the Events that alerts promise, and for people."""
