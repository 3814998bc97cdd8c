"""RayJobs: a cluster for each try, a submitter or the operator that submits, and what Ray says of the job.

`decide` answers «what now?» from a snapshot; `controller` takes the snapshot and carries the answer out. Every step can
be repeated: names are in the status before anything of that name is made, and Ray keeps one job of an ID.
"""
