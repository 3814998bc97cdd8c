"""What every controller needs and nothing about GPUs."""
