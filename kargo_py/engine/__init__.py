"""Runs the steps of a Promotion, as a pure state machine."""
