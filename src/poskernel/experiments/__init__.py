"""Experiments and paper studies: each module says what to run, which thresholds hold, and what to show."""
