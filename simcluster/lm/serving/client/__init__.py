"""A load on any server with OpenAI's API: requests at their times, streamed answers, failures by kind."""
