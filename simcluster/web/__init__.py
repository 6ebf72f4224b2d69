"""What every HTTP service and page shares: checks of a request, the look, scripts that draw a run in progress."""
