"""The parts that all backends share: a node's operations, inbox, device, verdict, watchdog."""
