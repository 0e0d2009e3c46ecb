"""Stand-ins for other programs, to run promotions on one machine."""
