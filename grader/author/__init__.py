"""What only an author of chapters uses: adding one, leaving one out, where lessons are opened."""
