"""The server of a language model: an API in OpenAI's shape, metrics, and a chat page.

The metrics have vLLM's names.
"""
