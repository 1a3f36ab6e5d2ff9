"""Sweeps: many trainings as one table of algorithms, environments and choices."""
