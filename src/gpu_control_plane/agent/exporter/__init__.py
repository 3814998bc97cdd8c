"""What the cards measure, as Prometheus reads it."""
