"""A semester: what is due when, what came when, and what both mean."""
