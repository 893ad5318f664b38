"""How one asks, and what one sees."""
