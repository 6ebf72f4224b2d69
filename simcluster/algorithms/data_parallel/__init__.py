"""Every rank holds the whole model and averages gradients with all others."""
