"""`make hostile`: hostile clients attack every port of a run while it trains."""
