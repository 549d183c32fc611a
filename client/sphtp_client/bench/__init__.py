"""Measuring: channels beside the other systems that somebody might have picked."""
