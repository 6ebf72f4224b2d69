"""Screenshots of the pages, of real runs, by a headless browser."""
