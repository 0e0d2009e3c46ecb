"""Test a pipeline of your own: a Kubernetes API, a simulated Argo CD and the controllers, as pytest fixtures.

Importing this imports nothing else; neither does the pytest plugin, ``kargo_py.testing.plugin``, until a fixture is
asked for.
"""
