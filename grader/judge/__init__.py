"""Is this answer right; if not, what is it."""
