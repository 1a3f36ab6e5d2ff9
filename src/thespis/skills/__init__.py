"""Rolls out, scores, plans with and exports learned skills."""
