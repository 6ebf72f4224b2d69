"""The pages that serve a model, held to their laws."""
