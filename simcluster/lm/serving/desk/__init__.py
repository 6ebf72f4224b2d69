"""The desk joins the HTTP server to an engine, in this process or another: requests in, tokens out."""
