"""Offer a load to any server with OpenAI's API; collect streamed answers and failures by kind."""
