"""Every node holds the model and averages gradients with all others."""
