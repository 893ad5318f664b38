"""Processes that run what is not trusted, and what passes between them."""
