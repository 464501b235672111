"""Positional kernels of trained attention: capture, estimates with their uncertainty, an atlas of a model's heads."""
