"""Claims of the sources as checks that can fail: one function a claim, a `Check` each."""

from poskernel.realizability.theorems.check import Check, Effort

__all__ = ["Check", "Effort"]
