"""The webhooks: they refuse or warn at once where a controller could only write a condition later."""
