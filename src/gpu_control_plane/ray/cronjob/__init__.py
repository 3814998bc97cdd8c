"""RayCronJobs: RayJobs by the clock. `decide` says what is due; `controller` makes and deletes RayJobs."""
