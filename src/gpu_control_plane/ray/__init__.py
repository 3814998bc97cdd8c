"""Ray on pools: RayCluster, RayJob, RayService and RayCronJob, from the same manifests as KubeRay.

`cluster/` makes pods of a RayCluster, `job/` and `service/` make RayClusters and talk to Ray through `dashboard/`,
`cronjob/` makes RayJobs. Each decides by pure functions and acts in its `controller.py`.
"""
