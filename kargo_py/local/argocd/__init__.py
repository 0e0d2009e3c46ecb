"""A simulated Argo CD: what its controllers write on Applications, without a cluster behind them.

:class:`~kargo_py.local.argocd.simulator.ArgoCD` is the way in. What decides is pure: ``operation`` (the life of an
operation), ``engine`` and ``sync`` (one pass of a sync), ``verdict`` (refresh and auto-sync) and ``application_set``.
``workers`` reads, asks them and writes, as the real ones do: with a gap, and without a precondition. "Spec" in these
modules is the project's description of Argo CD, which was taken from recordings of the real programs.
"""
