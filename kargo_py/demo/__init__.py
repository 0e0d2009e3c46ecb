"""``kargo-py demo``: one story of a Project, told and checked while it happens, all in one process."""
