"""Ray's dashboard over HTTP: jobs and Ray Serve.

`client` makes requests, with deadlines and limits. `calls` makes them outside of reconciles, so that a dashboard that
does not answer holds nobody up. `access` says where the dashboard of a RayCluster is.
"""
