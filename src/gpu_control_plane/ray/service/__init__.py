"""RayServices: which RayClusters they have, which configuration their Ray Serve gets, and where requests go.

`decide` asks one question after the other; each concern answers in a module of its own: `roles` (which clusters there
should be), `applications` (the configuration of Ray Serve and the state of its applications), `backend` (the cluster
that the Services select), `upgrade` with `incremental` and `handover_plan` (the next step of an upgrade), `conditions`
(the status for people).
"""
