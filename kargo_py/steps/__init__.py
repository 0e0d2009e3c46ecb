"""The kinds of step a Promotion may use."""
