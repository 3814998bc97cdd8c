"""What cannot be carried out of an object of Ray. Pure: controllers put it into statuses, admission refuses by it."""
