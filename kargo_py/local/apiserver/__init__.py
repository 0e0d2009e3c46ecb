"""A Kubernetes API server in this process: no cluster, no binaries, nothing kept when it ends."""
