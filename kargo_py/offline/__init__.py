"""Judges and renders manifests in files, without a cluster: what ``kargo-py lint`` and ``kargo-py render`` do."""
