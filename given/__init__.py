"""Code that every student is given as it is."""
