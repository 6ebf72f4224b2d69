"""Text and tokens: tokenizers, chat templates and grammars of language models.

Start with `tokens.py`, the interface; `chat.py` renders messages with the template of a file.
"""
