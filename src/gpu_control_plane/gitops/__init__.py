"""Argo CD Applications from values files of the upstream charts. Pure: the command line reads and writes the files."""
