"""What the course's files say: chapters, checks, lessons. No torch is imported but by `draw`."""
