"""Streams: what a run tells its reader while it goes on."""
