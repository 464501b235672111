"""Spectral interventions: named changes, their units, and what single classes of words need."""
