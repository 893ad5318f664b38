"""Where students hand in."""
