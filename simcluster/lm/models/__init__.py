"""The models that answer: decoders, their weights from files, tokens and sampling."""
