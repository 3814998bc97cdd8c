"""Pure decisions that several controllers share with each other, the webhooks and the command line."""
