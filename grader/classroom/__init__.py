"""What only an instructor uses, on top of the engine: the hand-out, a class's grades, and its reports."""
