"""The states of a ClusterPolicy: what each consists of, and bringing it into the cluster."""
