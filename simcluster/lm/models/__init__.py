"""The models that answer: shares of transformers models, with weights from files."""
