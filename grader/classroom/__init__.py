"""What only an instructor uses, on top of the engine and never below it."""
