"""The fluid network: routes, flows, and how they share links."""
