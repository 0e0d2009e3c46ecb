"""What holds for every test."""

pytest_plugins = ["tests.envtest.fixtures"]
