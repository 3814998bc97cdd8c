"""RayServices: which RayClusters they have, what Ray Serve is told, and which cluster requests go to.

`decide` asks one question after the other; each concern answers in a module of its own: `roles` (which clusters there
should be), `applications` (what Ray Serve is told and says), `backend` (where requests go), `incremental` and
`handover` (upgrades in steps), `conditions` (what people are told).
"""
