"""Kubernetes plumbing that knows no Kargo: client, cache, work queue, controller loop."""
