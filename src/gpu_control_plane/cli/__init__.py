"""`kubectl gpu`: the command line."""
