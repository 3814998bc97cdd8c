"""RayClusters: what pods and other objects they have, decided from a snapshot, and carried out."""
