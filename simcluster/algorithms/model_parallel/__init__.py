"""Every node holds a part of the model."""
