"""RayCronJobs: RayJobs by the clock."""
