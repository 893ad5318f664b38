"""The course as a site for readers: made from the lessons as they were committed, and never from copies of them."""
