"""The laws of the programs that serve a model, and checks of these laws."""
