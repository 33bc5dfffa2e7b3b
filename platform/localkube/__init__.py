"""localkube: a small Kubernetes-compatible API server and node in one process.

For trying the portal on one machine and for its tests; never for production. Production is any conformant cluster.
"""
