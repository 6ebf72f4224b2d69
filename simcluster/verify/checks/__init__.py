"""What an algorithm is held to: a file per law. Each check takes a `Subject` and yields lines of the table."""
