"""Screenshots of pages of real runs, taken with a headless browser."""
