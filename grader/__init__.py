"""Runs a check on two implementations and compares what comes back."""

from grader.checks import devices, dtypes, points, raises, shares_memory, tolerance

__all__ = ["devices", "dtypes", "points", "raises", "shares_memory", "tolerance"]
