"""Automatic troubleshooting: what is wrong in a cluster, by which evidence, and what to type.

`reading` takes a snapshot, one list of each kind; `checks` are pure functions over it; `examination` runs them. A check
whose objects could not be read is said not to have been made: it never counts as fine.
"""
