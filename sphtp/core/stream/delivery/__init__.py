"""The delivery controller: each message of a topic once and in its place, or its loss."""
