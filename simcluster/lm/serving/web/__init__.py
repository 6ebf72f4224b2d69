"""The server of a language model: an API in OpenAI's shape, metrics with vLLM's names, and a chat page."""
