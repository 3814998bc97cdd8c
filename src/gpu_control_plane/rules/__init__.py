"""Pure decisions that several controllers share with each other, the command line and the console."""
