"""Late join and off-transport recovery: what a source keeps, fetched over a connection."""
