"""What an assembled model has in place of libraries: the few of their functions that it uses, with torch alone."""
