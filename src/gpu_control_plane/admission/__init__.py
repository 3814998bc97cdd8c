"""The webhooks: they explain at once what a controller could only say later."""
