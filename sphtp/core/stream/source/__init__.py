"""The source of a stream: sends to all, and repairs what its receivers ask for."""
