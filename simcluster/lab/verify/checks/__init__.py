"""The laws that algorithms are checked against. A check takes a `Subject` and returns why it holds, or yields lines."""
