"""Simulated time: programs run on an event loop whose clock and order are decided by a seed, so that a run replays."""
